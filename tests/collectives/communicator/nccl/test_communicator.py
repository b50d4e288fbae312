"""Collectives among GPUs through NCCL's double: the same results as all communicators give."""

from __future__ import annotations

import pytest
from collective_scenarios import SCENARIOS

from tests.collectives.communicator.nccl.device_ranks import run_nccl

#: A stream keeps the order of what is put on it, so that a second start is no mistake there.
NAMES = [n for n in SCENARIOS if n != "a_second_start_before_the_first_is_over_is_refused"]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str, size: int) -> None:
    run_nccl(size, SCENARIOS[name])
