"""Probe: something that is timed for a description, by value; and rounds of them."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from launch.calibration.memory import Arena
from launch.calibration.timing import Action, Samples, cores, each_at_once, tried
from spmd.lazy_dataclass import dataclass

#: On each core that took part, of one round.
OfCores: TypeAlias = tuple[Samples, ...]


@dataclass(frozen=True)
class Probe(ABC):
    """Something that is timed. Equal probes time the same thing. ``budget``: approximate seconds of one round."""

    budget: float

    @abstractmethod
    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        """Prepare the probe with memory of its own. Each call of the result is one round."""


@dataclass(frozen=True)
class CoreProbe(Probe):
    """An action of one core, timed on every core at once."""

    @abstractmethod
    def make(self, arena: Arena) -> Action:
        """Return the action for one core, on memory of its own."""

    @property
    def executions(self) -> int:
        """The number of executions in one run of the action."""
        return 1

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        return partial(self._round, [self.make(arena) for _ in range(cores())])

    def _round(self, actions: Sequence[Action]) -> OfCores:
        found = each_at_once(actions, partial(tried, budget=self.budget))
        return tuple(Samples.of(seconds, self.executions) for seconds in found)


#: Seconds of one execution by probe, from which descriptions are made.
Seconds: TypeAlias = Mapping[Probe, float]
Round: TypeAlias = Mapping[Probe, OfCores]


class Rounds:
    """Probes that stay ready, and with them all their memory, as long as this does."""

    def __init__(self) -> None:
        self._ready: dict[Probe, Callable[[], OfCores]] = {}
        self._arena = Arena()

    def round(self, probes: Iterable[Probe]) -> Round:
        """Run each probe once."""
        return {probe: self._of(probe)() for probe in probes}

    def _of(self, probe: Probe) -> Callable[[], OfCores]:
        if probe not in self._ready:
            self._ready[probe] = probe.ready(self._arena)
        return self._ready[probe]


def least(rounds: Sequence[Round]) -> dict[Probe, float]:
    """Return for each probe the mean over cores of each core's best round: disturbances only delay."""
    by_probe: dict[Probe, list[OfCores]] = {}
    for one in rounds:
        for probe, found in one.items():
            by_probe.setdefault(probe, []).append(found)
    return {
        probe: statistics.fmean(
            min(samples.least for samples in of_core) for of_core in zip(*found, strict=True)
        )
        for probe, found in by_probe.items()
    }


def typical(one: Round) -> dict[Probe, float]:
    """Return for each probe the mean over cores of their medians."""
    return {
        probe: statistics.fmean(samples.median for samples in found) for probe, found in one.items()
    }


def spread(rounds: Sequence[Round]) -> float:
    """Return by how much longer the median probe took in its worst round than in its best one: 0.1 is a tenth."""
    sums = [
        {probe: sum(samples.least for samples in found) for probe, found in one.items()}
        for one in rounds
    ]
    probes = set(sums[0]).intersection(*sums[1:])
    ratios = sorted(max(r[p] for r in sums) / min(r[p] for r in sums) for p in probes)
    return ratios[len(ratios) // 2] - 1
