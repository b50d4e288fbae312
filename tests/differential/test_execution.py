"""Random programs, compiled through all stages and run on loopback devices, equal the evaluator."""

from __future__ import annotations

import pytest

from tests.differential.equivalence import check_execution
from tests.differential.fuzz import failure
from tests.strategies import generate

SEEDS = 60


@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_random_programs_run(start: int) -> None:
    failures = {}
    for seed in range(start, start + 20):
        program = generate(seed)
        found = failure(program.module, program.num_devices, seed, check_execution)
        if found is not None:
            failures[seed] = found
    assert failures == {}
