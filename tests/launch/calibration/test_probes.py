"""Rounds of probes: made once, and of all rounds the least of each core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from launch.calibration.memory import Arena
from launch.calibration.probes import OfCores, Probe, Rounds, least, spread, typical
from launch.calibration.timing import Samples


@dataclass(frozen=True)
class Scripted(Probe):
    """``script``: of each round, each core's seconds, of which the median is 1 more than the least."""

    script: tuple[tuple[float, ...], ...]
    made: tuple[list[str], ...] = ()

    def __hash__(self) -> int:
        return hash(self.script)

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        self.made[0].append("made")
        return map(tries, self.script).__next__


def tries(seconds: tuple[float, ...]) -> OfCores:
    return tuple(Samples(x, x + 1) for x in seconds)


def test_the_least_is_each_cores_own() -> None:
    """The mean of 1 and 2, which are of two rounds."""
    probe = Scripted(0.0, ((1.0, 9.0), (5.0, 2.0)))
    assert least([{probe: tries(seconds)} for seconds in probe.script]) == {probe: 1.5}


def test_the_typical_time_is_the_median_on_one_core() -> None:
    probe = Scripted(0.0, ())
    assert typical({probe: tries((1.0, 9.0))}, 1) == {probe: 10.0}
    assert typical({probe: tries((1.0,))}, 1) == {probe: 2.0}


def test_a_try_may_be_several_executions() -> None:
    assert Samples.of([6.0, 2.0, 8.0], executions=2) == Samples(1.0, 3.0)


def test_rounds_make_a_probe_once() -> None:
    made: list[str] = []
    probe = Scripted(0.0, ((1.0,), (2.0,)), (made,))
    rounds = Rounds()
    assert [rounds.round([probe]), rounds.round([probe])] == [
        {probe: tries((1.0,))},
        {probe: tries((2.0,))},
    ]
    assert made == ["made"]


def test_the_spread_is_the_median_probes() -> None:
    steady, half, double = (Scripted(n, ((1.0,),)) for n in (1.0, 2.0, 3.0))
    first = {steady: tries((1.0,)), half: tries((2.0, 2.0)), double: tries((1.0,))}
    second = {steady: tries((1.0,)), half: tries((3.0, 3.0)), double: tries((9.0,))}
    assert spread([first, second]) == pytest.approx(0.5)
