"""Tests of all-reduces that stay, since their sum is not what is sliced."""

from __future__ import annotations

from collectives.passes.reduce_scatter_creator import ReduceScatterCreator
from spmd.text.parser import parse_module

SUM_SAYS_WHERE = """HloModule m, num_partitions=4
sum {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}
ENTRY main {
  x = f32[8,4] parameter(0)
  y = s32[] parameter(1)
  two = u32[] constant(2)
  id = u32[] partition-id()
  place = u32[] multiply(id, two)
  mine = s32[] convert(place)
  where = s32[] all-reduce(y), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=sum
  ROOT part = f32[2,4] dynamic-slice(x, mine, where), dynamic_slice_sizes={2,4}
}
"""


def test_a_sum_that_says_where_another_array_is_sliced() -> None:
    assert not ReduceScatterCreator().run(parse_module(SUM_SAYS_WHERE))
