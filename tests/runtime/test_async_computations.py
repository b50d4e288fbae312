"""Computations that are started asynchronously run, in programs that come partitioned or not, scheduled or not."""

from __future__ import annotations

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.text.parser import parse_module

PROGRAM = """HloModule started{header}

square {{
  x = f32[8] parameter(0)
  ROOT y = f32[8] multiply(x, x)
}}

ENTRY main {{
  a = f32[8] parameter(0){sharding}
  start = ((f32[8]), f32[8], s32[]) async-start(a), calls=square
  b = f32[8] negate(a)
  update = ((f32[8]), f32[8], s32[]) async-update(start)
  done = f32[8] async-done(update)
  ROOT c = f32[8] add(done, b)
}}
"""


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("header", ["", ", is_scheduled=true"])
def test_a_started_computation_runs_in_place(header: str, *, partitioned: bool) -> None:
    module = parse_module(PROGRAM.format(header=header, sharding=""))
    executable = compile_module(module, 1, CompileOptions(partitioned=partitioned))
    a = np.arange(8, dtype=np.float32)
    (got,) = executable.run(a)
    np.testing.assert_array_equal(got, a * a - a)


def test_a_started_computation_is_partitioned() -> None:
    module = parse_module(
        PROGRAM.format(header=", num_partitions=2", sharding=", sharding={devices=[2]<=[2]}")
    )
    a = np.arange(8, dtype=np.float32)
    executable = compile_module(module, 2)
    (got,) = executable.run(a)
    np.testing.assert_array_equal(got, a * a - a)
    assert executable.stats.arguments == 16


#: A gathering of one device alone is its operand: simplified, nothing is left that could be in flight.
TRIVIAL = """HloModule trivial, num_partitions=2

gather {
  x = f32[8] parameter(0)
  ROOT g = f32[8] all-gather(x), channel_id=1, dimensions={0}, replica_groups={{0},{1}}, use_global_device_ids=true
}

ENTRY main {
  a = f32[8] parameter(0)
  start = ((f32[8]), f32[8]) async-start(a), calls=gather
  ROOT done = f32[8] async-done(start), calls=gather
}
"""


def test_a_started_collective_that_simplifies_to_its_operand_runs() -> None:
    executable = compile_module(parse_module(TRIVIAL), 2, CompileOptions(partitioned=True))
    tiles = [[np.arange(8, dtype=np.float32)], [np.ones(8, np.float32)]]
    for got, want in zip(executable.run_devices(tiles), tiles, strict=True):
        np.testing.assert_array_equal(got[0], want[0])
