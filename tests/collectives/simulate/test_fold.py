"""Devices that are folded behave as they do one by one."""

from __future__ import annotations

import random

import pytest

from collectives.simulate.fold import MAX_CLASSES, Fold, Meeting, fold_devices
from collectives.simulate.program import program_of
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from tests.collectives.simulate.scheduled import (
    Line,
    begin,
    end,
    loop,
    permute,
    ring,
    scheduled,
    work,
)

DEVICES = 8
GROUPS = (
    "",
    "{0,1,2,3},{4,5,6,7}",
    "{0,4},{1,5},{2,6},{3,7}",
    "{0,1},{2,3},{4,5},{6,7}",
    "{0},{1,2,3},{4,5,6,7}",
)
PAIRS = (
    ",".join(f"{{{i},{(i + 1) % 8}}}" for i in range(8)),
    "{0,1},{1,2},{2,3},{4,5},{5,6},{6,7}",
    "{0,4},{4,0}",
    "{1,1},{2,5}",
)


def folded(lines: list[Line], devices: int = DEVICES) -> Fold:
    made = scheduled(lines, devices)
    return fold_devices(program_of(made.module, [made.estimator]).sites, devices, 1)


def test_groups_of_one_size_are_one_class_on_any_number_of_devices() -> None:
    everyone = folded([ring("g", 1.0), ring("h", 1.0, GROUPS[2])])
    assert (everyone.sizes, everyone.representatives) == ((8,), (0,))
    assert everyone.meetings[0] == (Meeting((0,), together=True),)


def test_groups_of_two_sizes_are_two_classes() -> None:
    assert folded([ring("g", 1.0, "{0,1},{2,3,4,5,6,7}")]).sizes == (2, 6)


def test_a_rotation_is_one_class_and_a_line_has_a_class_for_each_position() -> None:
    assert folded([permute("g", 1.0, PAIRS[0])]).sizes == (8,)
    lines = folded([permute("g", 1.0, PAIRS[1])])
    assert (lines.sizes, lines.representatives) == ((2, 2, 2, 2), (0, 1, 2, 3))
    assert lines.meetings[0][0] == Meeting((0, 1), together=False)


def test_more_classes_than_are_told_apart() -> None:
    """A line of very many positions: all of them are taken for members."""
    devices = 2 * MAX_CLASSES
    pairs = ",".join(f"{{{i},{i + 1}}}" for i in range(devices - 1))
    line = folded([permute("g", 1.0, pairs)], devices)
    assert (line.sizes, line.exact) == ((devices,), False)


def some_lines(dice: random.Random, depth: int, made: list[int]) -> list[Line]:
    """Work, blocking and split collectives, permutes, loops; halves may overlap in any order."""
    lines: list[Line] = []
    under_way: list[str] = []
    for _ in range(dice.randrange(2, 7)):
        made[0] += 1
        name, seconds = f"x{made[0]}", dice.choice((0.5, 1.0, 2.0, 3.25))
        exchange = dice.choice(("near", "far"))
        match dice.randrange(6 if depth < 2 else 5):
            case 0 | 1:
                lines.append(work(name, seconds))
            case 2:
                lines.append(ring(name, seconds, dice.choice(GROUPS), exchange))
            case 3:
                use = dice.choice((1.0, 0.75, 0.5))
                lines.append(begin(name, seconds, dice.choice(GROUPS), exchange, use))
                under_way.append(name)
            case 4:
                lines.append(permute(name, seconds, dice.choice(PAIRS)))
            case 5:
                inside = some_lines(dice, depth + 1, made)
                lines.append(loop(name, dice.choice((1, 2, 3, 7, 40)), *inside))
        while under_way and dice.random() < 0.4:
            lines.append(end(under_way.pop(dice.randrange(len(under_way)))))
    return [*lines, *map(end, under_way)]


def same(one: Simulation, other: Simulation) -> None:
    assert one.seconds == pytest.approx(other.seconds, rel=1e-9)
    if one.device != other.device:  # several devices end last, within rounding
        return
    for figure in ("compute", "slowed", "exposed", "communication"):
        assert getattr(one, figure) == pytest.approx(getattr(other, figure), rel=1e-9, abs=1e-9)
    for left, right in zip(one.collectives, other.collectives, strict=True):
        assert (left.name, left.executions) == (right.name, right.executions)
        assert left.exposed == pytest.approx(right.exposed, rel=1e-9, abs=1e-9)
        assert left.seconds == pytest.approx(right.seconds, rel=1e-9, abs=1e-9)
    for mine, theirs in zip(one.resources, other.resources, strict=True):
        assert mine.busy == pytest.approx(theirs.busy, rel=1e-9)
        assert mine.hidden == pytest.approx(theirs.hidden, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_folded_and_extrapolated_as_device_by_device_in_full(seed: int) -> None:
    dice = random.Random(seed)
    made = scheduled(some_lines(dice, 0, [0]), DEVICES)
    busy = dice.choice(({}, {"near": 0.25, "far": 0.5}, {"near": 1.0}))
    found = simulate(made.module, [made.estimator], SimulationOptions(busy=busy))
    alone = SimulationOptions(paces=range(DEVICES), busy=busy, extrapolated=False)
    each = simulate(made.module, [made.estimator] * DEVICES, alone)
    assert each.classes == DEVICES
    same(found, each)
    extrapolated = SimulationOptions(paces=range(DEVICES), busy=busy)
    same(simulate(made.module, [made.estimator] * DEVICES, extrapolated), each)
