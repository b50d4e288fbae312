"""Devices that are folded behave as they do one by one."""

from __future__ import annotations

import random

import pytest

from collectives.simulate.device_classes import (
    MAX_CLASSES,
    DeviceClasses,
    Rendezvous,
    classify_devices,
)
from collectives.simulate.program import program_of
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from tests.collectives.simulate.random_schedules import DEVICES, GROUPS, PAIRS, some_lines
from tests.collectives.simulate.scheduled import (
    Line,
    permute,
    ring,
    scheduled,
)


def folded(lines: list[Line], devices: int = DEVICES) -> DeviceClasses:
    made = scheduled(lines, devices)
    return classify_devices(program_of(made.module, [made.estimator]).sites, devices, 1)


def test_groups_of_one_size_are_one_class_on_any_number_of_devices() -> None:
    everyone = folded([ring("g", 1.0), ring("h", 1.0, GROUPS[2])])
    assert (everyone.sizes, everyone.representatives) == ((8,), (0,))
    assert everyone.rendezvous_of_classes[0] == ((Rendezvous((0,), (0,)),),)


def test_groups_of_two_sizes_are_two_classes() -> None:
    assert folded([ring("g", 1.0, "{0,1},{2,3,4,5,6,7}")]).sizes == (2, 6)


def test_a_rotation_is_one_class_and_a_line_has_a_class_for_each_position() -> None:
    assert folded([permute("g", 1.0, PAIRS[0])]).sizes == (8,)
    lines = folded([permute("g", 1.0, PAIRS[1])])
    assert (lines.sizes, lines.representatives) == ((2, 2, 2, 2), (0, 1, 2, 3))
    assert lines.rendezvous_of_classes[0][0] == (
        Rendezvous((0, 1), (0,)),
        Rendezvous((0, 1, 2), (1,)),
    )


def test_more_classes_than_are_told_apart() -> None:
    """A line of very many positions: all of them are taken for members."""
    devices = 2 * MAX_CLASSES
    pairs = ",".join(f"{{{i},{i + 1}}}" for i in range(devices - 1))
    line = folded([permute("g", 1.0, pairs)], devices)
    assert (line.sizes, line.exact) == ((devices,), False)


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


@pytest.mark.parametrize("seed", range(40))
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
