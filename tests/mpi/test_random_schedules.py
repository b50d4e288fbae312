"""Random schedules on ranks of several nodes: collectives of the same devices are in flight together, and none hangs."""

from __future__ import annotations

import pytest

from collectives.communicator.interface import Communicator
from tests.collectives.schedule.random_runs import check_run, on_ranks, overlaps

pytestmark = pytest.mark.mpi(min_size=2)


def test_results_are_the_evaluator_s(spread_comm: Communicator) -> None:
    run = on_ranks(spread_comm)
    # Each rank evaluates the programs of all.
    modules = [check_run(seed, spread_comm.size, run) for seed in range(32 // spread_comm.size)]
    assert sum(map(overlaps, modules)) > 0
