"""What a module is brought into before its annotations are read."""

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
