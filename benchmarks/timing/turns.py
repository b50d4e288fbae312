"""What is compared runs in turns: a disturbance of a shared machine then meets all of them, and the least is nearest
to what each can do.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

Work = Callable[[], object]


def seconds(work: Work, times: int = 1) -> float:
    """Wall time of one call, the average of ``times`` calls in a row."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def in_turns(works: Mapping[str, Work], rounds: int, times: int = 1) -> dict[str, list[float]]:
    """Seconds of one call of each work, round after round; in each round every work is called ``times`` times."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(seconds(work, times))
    return found


def least_seconds(works: Mapping[str, Work], rounds: int, times: int = 1) -> dict[str, float]:
    """Of one call of each, in its best round."""
    return {name: min(found) for name, found in in_turns(works, rounds, times).items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    """nan of none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan
