"""Replicas on real ranks: rank = replica x partitions + partition, in every way of naming groups."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.communicator.interface import Communicator
from launch.pipeline import compile_module
from launch.ranks.rank_executable import RankExecutable
from spmd.text.parser import parse_module

pytestmark = pytest.mark.mpi(min_size=2)

SUM = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
"""


def program(partitions: int) -> str:
    """Sums over the rows (of all partitions), then over replicas, each replica adding its number."""
    return f"""HloModule m, replica_count=2, num_partitions={partitions}
{SUM}
ENTRY main {{
  x = f32[8,2] parameter(0), sharding={{devices=[{partitions},1]<=[{partitions}]}}
  zero = f32[] constant(0)
  rows = f32[2] reduce(x, zero), dimensions={{0}}, to_apply=sum
  id = u32[] replica-id()
  f = f32[] convert(id)
  b = f32[2] broadcast(f), dimensions={{}}
  mine = f32[2] add(rows, b)
  across = f32[2] all-reduce(mine), replica_groups={{{{0,1}}}}, to_apply=sum
  turned = f32[8,2] custom-call(x), custom_call_target="Sharding", sharding={{devices=[1,{partitions}]<=[{partitions}]}}
  ROOT r = (f32[2], f32[2], f32[8,2]) tuple(mine, across, turned)
}}
"""


def test_replicas(comm: Communicator) -> None:
    if comm.size % 2:
        pytest.skip("two replicas need an even number of ranks")
    executable = compile_module(parse_module(program(comm.size // 2)), comm.size)
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    whole = RankExecutable.of(executable, comm).run(x)
    local = executable.run(x)
    if whole:
        for got, want in zip(whole, local, strict=True):
            assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
        np.testing.assert_array_equal(whole[0], x.sum(0))
        np.testing.assert_array_equal(whole[1], 2 * x.sum(0) + 1)
        np.testing.assert_array_equal(whole[2], x)
    comm.barrier()
