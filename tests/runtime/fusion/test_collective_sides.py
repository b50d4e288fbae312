"""Kernels of several results where collectives may run beside them: none ties what one waits for to what another needs."""

from __future__ import annotations

import runtime.emit  # noqa: F401 - fills the table of lowerings
from runtime.fusion.collective_sides import CollectiveSides
from runtime.fusion.priority_fusion import PriorityFusion
from spmd.hlo import HloModule, Opcode, Stage
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

#: Two pieces that read the same bias, and of which each is sent when it is done.
TEXT = """HloModule t, is_scheduled=true, num_partitions=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  bias = f32[64,64] parameter(2)
  one = f32[64,64] add(x, bias)
  other = f32[64,64] add(y, bias)
  p = f32[64,64] all-reduce(one), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
  q = f32[64,64] all-reduce(other), channel_id=2, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
  ROOT t = (f32[64,64], f32[64,64]) tuple(p, q)
}
"""


def program() -> HloModule:
    return parse_module(TEXT)


def fusions(machine: str) -> int:
    module = program()
    assert module.stage is Stage.SCHEDULED
    PriorityFusion(machine=machine_named(machine)).run(module)
    return len(list(module.entry.with_opcode(Opcode.FUSION)))


def test_pieces_of_what_is_sent_stay_apart_where_that_is_hidden() -> None:
    assert fusions("cpu-avx512") == 1
    assert fusions("tcp-cluster") == 0


def test_sides() -> None:
    entry = program().entry
    named = {x.name: x for x in entry.instructions}
    sides = CollectiveSides.of(entry.instructions)
    one, other, p, q, bias = (named[name] for name in ("one", "other", "p", "q", "bias"))
    assert sides.may_merge([one], [one])
    assert not sides.may_merge([one], [other])
    assert sides.may_merge([one], [bias])
    assert sides.may_merge([one, other], [bias])
    assert not sides.may_merge([p], [q])
