"""Optimization keeps what each device computes: JAX's programs on their own inputs, random programs; and would say so."""

from __future__ import annotations

import pytest

from spmd.builder import Builder
from spmd.hlo import HloInstruction, Opcode
from spmd.passes.algebraic.rules import IDENTITIES
from tests.differential.fuzz import Task, run
from tests.differential.optimized import measure
from tests.differential.test_cases import CASES, NAMES


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    row = measure(CASES / name)
    assert row.ok, str(row)
    # Where a trip stands beside its loop, a program is longer by that trip at most, and fewer instructions run.
    assert row.after < row.before + row.peeled
    assert row.peeled <= row.body
    assert not row.peeled or row.run_after < row.run_before


def found(seeds: range) -> dict[int, str]:
    outcomes = [run(Task(seed, "", "optimized", counts=False)) for seed in seeds]
    return {outcome.seed: outcome.found for outcome in outcomes if outcome.found is not None}


def test_random_programs() -> None:
    """`python -m tests.differential.fuzz --through optimized --count 20000` runs more."""
    assert found(range(40)) == {}


def maximum_is_minimum(x: HloInstruction, b: Builder) -> HloInstruction:
    return b.minimum(*x.operands)


def test_a_wrong_identity_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IDENTITIES, Opcode.MAXIMUM, [maximum_is_minimum])
    failures: dict[int, str] = {}
    for seed in range(40):
        failures |= found(range(seed, seed + 1))
        if len(failures) == 2:
            break
    assert failures
    assert all(text.startswith("NotEquivalentError: output") for text in failures.values())
