"""Timing of actions: on every core at once, as the devices of a program work, with many samples each.

Disturbances only delay: the least time is that of an undisturbed core while other cores do the same; the median is that
of the core at that time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from spmd.lazy_dataclass import dataclass

#: Ready to be done; one for each core.
Action = Callable[[], object]
Timed = TypeVar("Timed")

#: Samples, and seconds of the runs in one sample, which make the clock's own time negligible.
LEAST_SAMPLES, MOST_SAMPLES = 3, 1000
LEAST_SECONDS = 2e-5


def cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of one run, of several that were tried."""

    least: float
    median: float

    @staticmethod
    def of(seconds: Sequence[float], executions: int = 1) -> Samples:
        """Summarize the seconds of runs of ``executions`` executions each."""
        return Samples(min(seconds) / executions, statistics.median(seconds) / executions)


def tried(action: Action, budget: float) -> list[float]:
    """Return the seconds of runs of ``action``, for about ``budget`` seconds after one to warm up.

    The clock is the thread's own time, so other work on the core does not count.
    """
    action()
    once = max(_thread_seconds(action, 1), 1e-8)
    times = max(1, int(LEAST_SECONDS / once))
    samples = max(LEAST_SAMPLES, min(int(budget / (times * once)), MOST_SAMPLES))
    return [_thread_seconds(action, times) for _ in range(samples)]


def in_turn(actions: Sequence[Action]) -> Action:
    """Return an action that runs all actions one after the other."""
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _thread_seconds(action: Action, times: int) -> float:
    start = time.thread_time()
    for _ in range(times):
        action()
    return (time.thread_time() - start) / times


def each_at_once(actions: Sequence[Action], timed: Callable[[Action], Timed]) -> list[Timed]:
    """Return the result of ``timed`` for each action, all starting together after a warm-up run.

    Actions leave Python's lock to others while they run.
    """
    barrier = Barrier(len(actions))

    def started(action: Action) -> Timed:
        action()
        barrier.wait()
        return timed(action)

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(started, actions))
