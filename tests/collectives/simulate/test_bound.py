"""Bounds and independence, by hand and against their definitions."""

from __future__ import annotations

import random

import pytest

from collectives.cost.independence import independent_seconds
from collectives.simulate.bound import Bounds
from collectives.simulate.simulate import SimulationOptions, simulate
from spmd.hlo import HloComputation, HloInstruction
from spmd.text.parser import parse_module
from tests.collectives.simulate.random_schedules import DEVICES, some_lines
from tests.collectives.simulate.scheduled import begin, end, loop, ring, scheduled, work


@pytest.mark.parametrize(
    ("lines", "seconds", "what"),
    [
        ([work("a", 3.0), begin("g", 2.0), work("b", 2.0), end("g")], 5.0, "compute"),
        ([work("a", 3.0), begin("g", 9.0), begin("h", 8.0), end("g"), end("h")], 17.0, "wire"),
        ([work("a", 3.0), ring("g", 2.0), work("b", 2.0)], 7.0, "critical path"),
        ([loop("l", 10, work("a", 3.0), ring("g", 2.0))], 50.0, "critical path"),
    ],
)
def test_what_no_order_gets_below(lines: list[object], seconds: float, what: str) -> None:
    made = scheduled(lines)  # type: ignore[arg-type]
    bound = Bounds(made.estimator, {}).of(made.module.entry)
    assert (bound.seconds, bound.what) == (seconds, what)


@pytest.mark.parametrize("seed", range(20))
def test_no_step_is_below_its_bound(seed: int) -> None:
    made = scheduled(some_lines(random.Random(seed), 0, [0]), DEVICES)
    found = simulate(made.module, [made.estimator], SimulationOptions())
    assert found.bound.seconds <= found.seconds * (1 + 1e-9)


def reaches(start: HloInstruction, wanted: HloInstruction) -> bool:
    return start is wanted or any(reaches(user, wanted) for user in start.users)


def test_independent_work_is_what_neither_reaches_nor_is_reached() -> None:
    dice = random.Random(1)
    lines = ["x0 = f32[8] parameter(0)"]
    for n in range(1, 40):
        one, other = (f"x{dice.randrange(n)}" for _ in range(2))
        lines.append(f"x{n} = f32[8] add({one}, {other})")
    lines.append("ROOT r = f32[8] negate(x39)")
    entry: HloComputation = parse_module(
        "HloModule random\nENTRY main {\n  " + "\n  ".join(lines) + "\n}"
    ).entry
    asked = entry.instructions[5:40:3]
    found = independent_seconds(
        entry, asked, lambda x: float(x.name[1:] or 0) if x.name != "r" else 1.0
    )
    for x in asked:
        wanted = sum(
            float(y.name[1:]) if y.name != "r" else 1.0
            for y in entry.instructions
            if not reaches(x, y) and not reaches(y, x)
        )
        assert found[x] == pytest.approx(wanted)


def test_no_independent_work_is_none_at_all() -> None:
    """The result is zero, and not the rest of a difference between two sums."""
    lines = ["x0 = f32[8] parameter(0)"]
    lines += [f"x{n} = f32[8] negate(x{n - 1})" for n in range(1, 200)]
    lines.append("ROOT r = f32[8] negate(x199)")
    entry = parse_module("HloModule line\nENTRY main {\n  " + "\n  ".join(lines) + "\n}").entry
    asked = entry.instructions[10:190:7]
    dice = random.Random(2)
    seconds = {x: dice.random() for x in entry.instructions}
    found = independent_seconds(entry, asked, seconds.__getitem__)
    assert set(found.values()) == {0.0}
