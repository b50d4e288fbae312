"""The checker finds every planted bug, and finds nothing where none is planted."""

from __future__ import annotations

from functools import cache

import pytest

from tests.differential.fuzz import failure
from tests.mutants import (  # noqa: F401 - fill the list
    annotating,
    families,
    halos,
    layouts,
    operations,
    resharding,
)
from tests.mutants.patching import MUTANTS, Mutant
from tests.strategies import generate

#: Seeds a bug may take to be found.
SEEDS = 400
LEAST = 70


def first_found(mutant: Mutant, seeds: int = SEEDS) -> tuple[int, str] | None:
    """The first seed that the checker fails on with the bug planted, and what it says."""
    for seed in range(mutant.first, mutant.first + seeds):
        program = generate(seed, mutant.focus)
        with mutant.plant():
            found = failure(program.module, program.num_devices, seed)
        if found is not None:
            return seed, found
    return None


@cache
def without_bug(seed: int, focus: str) -> str | None:
    """Return what the checker says of the program where no bug is planted; the program may show several bugs."""
    program = generate(seed, focus)
    return failure(program.module, program.num_devices, seed)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= LEAST
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    found = first_found(mutant)
    assert found is not None, f"no program of {SEEDS} shows that {mutant.what}"
    assert without_bug(found[0], mutant.focus) is None, "fails without the bug too"
