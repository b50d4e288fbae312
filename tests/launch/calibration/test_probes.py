"""Rounds of probes: made once, and of all rounds the least of each core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from launch.calibration.memory import Arena
from launch.calibration.probes import OfCores, Probe, Rounds, least, spread


@dataclass(frozen=True)
class Scripted(Probe):
    """``script``: of each round, each core's seconds."""

    script: tuple[OfCores, ...]
    made: tuple[list[str], ...] = ()

    def __hash__(self) -> int:
        return hash(self.script)

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        self.made[0].append("made")
        return iter(self.script).__next__


def test_the_least_is_each_cores_own() -> None:
    """The mean of 1 and 2, which are of two rounds."""
    probe = Scripted(0.0, ((1.0, 9.0), (5.0, 2.0)))
    assert least([{probe: of_cores} for of_cores in probe.script]) == {probe: 1.5}


def test_rounds_make_a_probe_once() -> None:
    made: list[str] = []
    probe = Scripted(0.0, ((1.0,), (2.0,)), (made,))
    rounds = Rounds()
    assert [rounds.round([probe]), rounds.round([probe])] == [{probe: (1.0,)}, {probe: (2.0,)}]
    assert made == ["made"]


def test_the_spread_is_the_median_probes() -> None:
    steady, half, double = (Scripted(n, ((1.0,),)) for n in (1.0, 2.0, 3.0))
    first = {steady: (1.0,), half: (2.0, 2.0), double: (1.0,)}
    second = {steady: (1.0,), half: (3.0, 3.0), double: (9.0,)}
    assert spread([first, second]) == pytest.approx(0.5)
