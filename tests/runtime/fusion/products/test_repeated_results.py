"""Results of a kernel that repeat others are found by what they compute, not by their names."""

from __future__ import annotations

from runtime.fusion.products.repeated_results import repeated_results
from tests.runtime.programs.build import module_of

TEXT = """HloModule t

ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] add(x, y)
  b = f32[8] add(x, y)
  c = f32[8] add(y, x)
  n = f32[8] negate(a)
  m = f32[8] negate(b)
  k = f32[8] exponential(b)
  ROOT t = (f32[8], f32[8], f32[8], f32[8], f32[8], f32[8]) tuple(a, b, c, n, m, k)
}
"""


def test_repeats_are_found() -> None:
    x, y, a, b, c, n, m, k, _ = module_of(TEXT).entry.instructions
    assert repeated_results((a, b, c, n, m, k), (x, y)) == {b: a, m: n}
    assert repeated_results((m, k, n), (x, y)) == {n: m}
    assert repeated_results((n, m), (a, b)) == {}
