"""Tests on random timelines that parts add up to their wholes, whatever the devices did."""

from __future__ import annotations

import random

import pytest

from launch.report.overlap.model import OverlapReport
from tests.launch.report.overlap.timelines import Lane, report, site

SITES = ["g", "h", "i"]


def random_step(rng: random.Random, devices: int, blocking: bool) -> list[Lane]:
    """Each device does the same in the same order, but at its own speed. Landings come after all have issued."""
    lanes = [Lane(rng.randrange(5)) for _ in range(devices)]
    open_starts: list[tuple[str, float]] = []
    for number, name in enumerate(SITES):
        for lane in lanes:
            lane.kernel(f"k{number}", rng.randrange(1, 40))
            lane.start(name, rng.randrange(3))
        landed = max(lane.at for lane in lanes) + rng.randrange(1, 30)
        open_starts.append((name, landed))
        while open_starts and (blocking or rng.random() < 0.5):
            waited, at = open_starts.pop(0)
            for lane in lanes:
                lane.wait(waited, at)
    for waited, at in open_starts:
        for lane in lanes:
            lane.kernel(f"before {waited}", rng.randrange(1, 9))
            lane.wait(waited, at)
    return lanes


def random_report(seed: int, *, reference: bool = True) -> OverlapReport:
    rng = random.Random(seed)
    devices = rng.choice([1, 2, 4])
    steps = [random_step(rng, devices, blocking=False) for _ in range(rng.randrange(1, 7))]
    blocked = [random_step(rng, devices, blocking=True) for _ in range(rng.randrange(1, 7))]
    groups = (tuple(range(devices)),)
    sites = [
        site(name, rng.choice([None, 0, 10, 100]), groups=groups, limited=rng.choice([0, 5]))
        for name in SITES
    ]
    return report(steps, blocked if reference else [], sites)


@pytest.mark.parametrize("seed", range(40))
def test_parts_add_up(seed: int) -> None:
    found = random_report(seed)
    for step in found.run.steps:
        for device in step.devices:
            for async_interval in device.async_intervals:
                if not step.blocking:
                    whole = sum(seconds for _, seconds in async_interval.parts)
                    assert whole == pytest.approx(async_interval.exposed, abs=1e-9)
                    assert all(seconds > 0 for _, seconds in async_interval.parts)
                    assert bool(async_interval.why) == bool(
                        async_interval.parts or async_interval.slowed > 0
                    )
    for one in found.collectives:
        parts = sum(seconds for _, seconds in one.parts)
        assert parts == pytest.approx(one.exposed, abs=1e-9)
        assert one.effective == pytest.approx(one.reference_exposed - one.exposed - one.slowed)
    assert found.reference_seconds is not None
    gained = found.reference_seconds - found.seconds
    assert found.effective + found.elsewhere == pytest.approx(gained, abs=1e-12)
    assert found.compute + found.exposed + found.other == pytest.approx(found.seconds)
    assert found.exposed == pytest.approx(sum(one.exposed for one in found.collectives))
    assert found.slowed == pytest.approx(sum(one.slowed for one in found.collectives), abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_critical_path_has_no_gaps(seed: int) -> None:
    found = random_report(seed)
    (step,) = (one for one in found.run.steps if one.number == found.shown)
    assert found.path[-1].end == pytest.approx(step.end)
    assert found.path[0].start == pytest.approx(step.begin)
    for before, after in zip(found.path, found.path[1:], strict=False):
        assert before.end == pytest.approx(after.start)
        assert before.seconds > 0


@pytest.mark.parametrize("seed", range(10))
def test_nothing_needs_reference_steps(seed: int) -> None:
    found = random_report(seed, reference=False)
    assert found.reference_seconds is None
    assert "no reference steps" in found.notes[0]
    assert found.effective == pytest.approx(sum(one.effective for one in found.collectives))
