"""Timing in turns, for works that are compared.

A disturbance of a shared machine then meets all of them, and the least time is nearest to what each can do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping

from benchmarks.timing.own_clock import CLOCK

Work = Callable[[], object]


def seconds(work: Work, times: int = 1) -> float:
    """Return the time of one call by ``CLOCK``, the average of ``times`` calls in a row."""
    start = CLOCK()
    for _ in range(times):
        work()
    return (CLOCK() - start) / times


def in_turns(works: Mapping[str, Work], rounds: int, times: int = 1) -> dict[str, list[float]]:
    """Return the seconds of one call of each work and round; in each round every work is called ``times`` times."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(seconds(work, times))
    return found


def least_seconds(works: Mapping[str, Work], rounds: int, times: int = 1) -> dict[str, float]:
    """Return the seconds of one call of each work, in its best round."""
    return {name: min(found) for name, found in in_turns(works, rounds, times).items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean; nan where there are no ratios."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan
