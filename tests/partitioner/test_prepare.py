"""Tests of the form into which a module is brought before its annotations are read."""

from __future__ import annotations

import numpy as np

import spmd
from spmd.hlo import Opcode
from spmd.verifier.verifier import verify
from tests.differential.equivalence import check_equivalence

ROWS = "sharding={devices=[2,1]<=[2]}"


def test_shardings_pass_through_fusions_both_ways() -> None:
    text = """HloModule m, allow_spmd_sharding_propagation_to_parameters={true}
f {
  a = f32[4,6] parameter(0)
  b = f32[4,6] parameter(1)
  s = f32[4,6] add(a, b)
  u = f32[6,4] transpose(s), dimensions={1,0}
  ROOT t = (f32[4,6], f32[6,4]) tuple(s, u)
}
ENTRY main {
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  g = (f32[4,6], f32[6,4]) fusion(x, y), kind=kLoop, calls=f
  h = f32[6,4] get-tuple-element(g), index=1
  ROOT r = f32[6,4] custom-call(h), custom_call_target="Sharding", sharding={devices=[1,2]<=[2]}
}
"""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = check_equivalence(spmd.parse(text), 2, [x, x])
    assert [str(p.sharding) for p in found.entry.parameters] == ["{devices=[2,1]<=[2]}"] * 2
    assert not [i for i in found.all_instructions() if i.opcode is Opcode.FUSION]


def test_shardings_within_reducers_are_dropped() -> None:
    text = f"""HloModule m
add {{
  a = f32[] parameter(0), sharding={{replicated}}
  b = f32[] parameter(1), sharding={{replicated}}
  ROOT s = f32[] add(a, b), sharding={{replicated}}
}}
ENTRY main {{
  x = f32[4,6] parameter(0), {ROWS}
  zero = f32[] constant(0)
  ROOT r = f32[6] reduce(x, zero), dimensions={{0}}, to_apply=add
}}
"""
    verify(spmd.partition(spmd.parse(text), 2))


def test_what_a_reducer_makes_of_its_elements_is_split_like_them() -> None:
    """Totals of devices meet by maximum: the reducer would take the magnitude of one of two, and lose -9."""
    text = """HloModule m
largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] abs(b)
  ROOT r = f32[] maximum(a, c)
}
ENTRY main {
  x = f32[7] parameter(0), sharding={devices=[4]<=[4]}
  one = f32[] constant(1)
  ROOT r = f32[] reduce(x, one), dimensions={0}, to_apply=largest
}
"""
    x = np.array([2, -9, 1, 3, -4, 0, 5], np.float32)
    found = check_equivalence(spmd.parse(text), 4, [x])
    opcodes = [i.opcode for i in found.all_instructions()]
    assert Opcode.ALL_REDUCE in opcodes
    assert Opcode.ALL_GATHER not in opcodes
    assert spmd.evaluate(spmd.parse(text), x)[0] == 9
