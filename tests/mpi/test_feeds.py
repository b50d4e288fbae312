"""infeed and outfeed on ranks: each takes its tiles of what all are fed, and the first gets what all have given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spmd
from collectives.communicator.interface import Communicator
from launch.ranks.rank_executable import RankExecutable
from tests.launch.data.feed_programs import LOOP, loop_items, loop_start

pytestmark = pytest.mark.mpi(min_size=2)


def test_each_rank_takes_its_tiles(comm: Communicator) -> None:
    text = LOOP.replace("devices=[2,1]<=[2]", f"devices=[{comm.size},1]<=[{comm.size}]")
    module = spmd.parse(text.replace("num_partitions=2", f"num_partitions={comm.size}"))
    gives: list[Any] = []
    (want,) = spmd.evaluate(module, loop_start(), infeed=loop_items(), outfeed=gives)
    executable = RankExecutable.of(compiled_here(module, comm.size), comm)
    given: list[Any] = []
    got = executable.run(loop_start(), infeed=loop_items(), outfeed=given)
    assert len(given) == (3 if comm.rank == 0 else 0)
    assert all(map(np.array_equal, [*got, *given], [want, *gives]))
    executable.run(loop_start(), infeed=loop_items(), outfeed=given, gather="all")
    assert all(map(np.array_equal, given[-3:], gives))
    devices: list[int] = []
    executable.run(
        loop_start(), infeed=loop_items(), outfeed=lambda device, _: devices.append(device)
    )
    assert devices == [comm.rank] * 3


def compiled_here(module: spmd.HloModule, devices: int) -> spmd.Executable:
    """Compile as one process would."""
    from launch.options import CompileOptions
    from launch.pipeline import compile_module

    return compile_module(module, devices, CompileOptions())
