"""Probes, the units of work that a calibration times, and rounds in which several probes are timed."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from launch.calibration.memory import Arena
from launch.calibration.timing import Action, Samples, cores, each_at_once, tried
from spmd.lazy_dataclass import dataclass

#: Samples of one probe in one round, from each core that took part.
OfCores: TypeAlias = tuple[Samples, ...]


@dataclass(frozen=True)
class Probe(ABC):
    """Unit of work that is timed. Equal probes do equal work. ``budget``: approximate seconds of one round."""

    budget: float

    @abstractmethod
    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        """Prepare the probe with memory of its own from ``arena``. Returns a function that times one round."""


@dataclass(frozen=True)
class CoreProbe(Probe):
    """Probe whose action runs on one core, and is timed on every core at once."""

    @abstractmethod
    def make(self, arena: Arena) -> Action:
        """Return the action for one core, with memory of its own from ``arena``."""

    @property
    def executions(self) -> int:
        """Return the number of executions in one run of the action, by which its time is divided."""
        return 1

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        """Make an action for each core. Returns a function that times one round of them."""
        return partial(self._round, [self.make(arena) for _ in range(cores())])

    def _round(self, actions: Sequence[Action]) -> OfCores:
        found = each_at_once(actions, partial(tried, budget=self.budget))
        return tuple(Samples.of(seconds, self.executions) for seconds in found)


#: Seconds of one execution by probe, from which descriptions are made.
Seconds: TypeAlias = Mapping[Probe, float]
Round: TypeAlias = Mapping[Probe, OfCores]


class Rounds:
    """Set of prepared probes, which keeps their memory allocated as long as it lives."""

    def __init__(self) -> None:
        self._ready: dict[Probe, Callable[[], OfCores]] = {}
        self._arena = Arena()

    def round(self, probes: Iterable[Probe]) -> Round:
        """Time one round of each probe. Probes that are not prepared are prepared first."""
        return {probe: self._of(probe)() for probe in probes}

    def _of(self, probe: Probe) -> Callable[[], OfCores]:
        if probe not in self._ready:
            self._ready[probe] = probe.ready(self._arena)
        return self._ready[probe]


def least(rounds: Sequence[Round]) -> dict[Probe, float]:
    """Return the seconds of each probe: each core's least time over all rounds, averaged over the cores.

    The least time is used because disturbances only delay.
    """
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


def typical(one: Round, core: int) -> dict[Probe, float]:
    """Return the median time on core number ``core`` of each probe of a round; that of a whole program has one time."""
    return {probe: found[core % len(found)].median for probe, found in one.items()}


def spread(rounds: Sequence[Round]) -> float:
    """Return the spread of rounds: the median over probes of (time in the slowest round / time in the fastest) - 1."""
    sums = [
        {probe: sum(samples.least for samples in found) for probe, found in one.items()}
        for one in rounds
    ]
    probes = set(sums[0]).intersection(*sums[1:])
    ratios = sorted(max(r[p] for r in sums) / min(r[p] for r in sums) for p in probes)
    return ratios[len(ratios) // 2] - 1
