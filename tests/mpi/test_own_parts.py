"""Collectives on values that lie in this rank's own part of an output, on ranks that share memory or do not."""

from __future__ import annotations

import pytest
from own_part_modules import check_run, modules

from collectives.communicator.interface import Communicator
from tests.collectives.schedule.random_runs import on_ranks

pytestmark = pytest.mark.mpi(min_size=2)


def test_over_shared_memory(comm: Communicator) -> None:
    if comm.size > 4:
        pytest.skip("the groups of four ranks are all there are; eight take long to compile")
    run = on_ranks(comm)
    assert min(check_run(module, run) for module in modules(comm.size)) >= 6


def test_on_ranks_of_several_nodes(spread_comm: Communicator) -> None:
    if spread_comm.size > 4:
        pytest.skip("the groups of four ranks are all there are; eight take long to compile")
    run = on_ranks(spread_comm)
    check_run(next(modules(spread_comm.size)), run)
