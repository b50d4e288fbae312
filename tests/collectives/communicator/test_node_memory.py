"""Collectives over the memory of a node: the scenarios of every communicator, on threads that map the same memory."""

from __future__ import annotations

import pytest
from bound_collectives import InAllocatedMemory
from collective_scenarios import SCENARIOS
from shared_memory_ranks import run_shared_memory_ranks


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_where_small_operands_go_through_slots(name: str, size: int) -> None:
    run_shared_memory_ranks(size, lambda comm: SCENARIOS[name](InAllocatedMemory(comm)))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_in_place(name: str, size: int) -> None:
    run_shared_memory_ranks(
        size, lambda comm: SCENARIOS[name](InAllocatedMemory(comm)), slot_bytes=0
    )
