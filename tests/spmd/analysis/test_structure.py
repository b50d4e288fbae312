"""Structural keys, side effects."""

from __future__ import annotations

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.structure import StructuralKeys
from spmd.text.parser import parse_module

TEXT = """HloModule t
one {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add.1 = f32[] add(x, y)
}
two {
  b = f32[] parameter(1)
  a = f32[] parameter(0)
  ROOT add.2 = f32[] add(a, b)
}
swapped {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add.3 = f32[] add(y, x)
}
random {
  l = f32[] parameter(0)
  h = f32[] parameter(1)
  ROOT g = f32[] rng(l, h), distribution=rng_uniform
}
ENTRY e {
  p = f32[] parameter(0)
  q = f32[] negate(p)
  r = f32[] call(p, q), to_apply=random
  s = f32[] call(p, p), to_apply=one
  ROOT t = (f32[], f32[]) tuple(r, q)
}
"""


def test_equal_programs_have_equal_keys() -> None:
    module = parse_module(TEXT)
    keys = StructuralKeys()
    one, two, swapped = (keys.key(c) for c in module.computations[:3])
    assert one == two
    assert one != swapped


def test_side_effects_are_found_inside_callees() -> None:
    module, effects = parse_module(TEXT), SideEffects()
    found = {x.name for x in module.entry.instructions if effects.of(x)}
    assert found == {"r"}
