"""On one device the collectives of a `shard_map` disappear: each group has one member."""

from __future__ import annotations

import spmd
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.hlo.collective_opcodes import SYNCHRONOUS_COLLECTIVES
from spmd.hlo.opcode import Opcode

TEXT = """HloModule one_device
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[8,4] parameter(0)
  s = f32[8,4] all-reduce(x), channel_id=1, replica_groups={{0}}, use_global_device_ids=true, to_apply=plus
  n = f32[8,4] sine(s)
  g = f32[8,4] all-gather(n), channel_id=2, replica_groups={{0}}, dimensions={0}, use_global_device_ids=true
  p = f32[8,4] collective-permute(g), channel_id=3, source_target_pairs={{0,0}}
  r = f32[8,4] reduce-scatter(p), channel_id=4, replica_groups={{0}}, dimensions={0}, use_global_device_ids=true,
    to_apply=plus
  t = f32[8,4] all-to-all(r), channel_id=5, replica_groups={{0}}, dimensions={0}
  i = u32[] partition-id()
  f = f32[] convert(i)
  b = f32[8,4] broadcast(f), dimensions={}
  ROOT y = f32[8,4] add(t, b)
}
"""


def test_no_collective_is_left_on_one_device() -> None:
    module = spmd.parse(TEXT)
    *_, (_, compilation) = stages(module, 1, CompileOptions())
    of_one = {*SYNCHRONOUS_COLLECTIVES, Opcode.PARTITION_ID}
    assert [x.name for x in compilation.module.all_instructions() if x.opcode in of_one] == []
