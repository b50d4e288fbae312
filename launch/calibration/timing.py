"""Timing of actions on every core at once, as the devices of a program run, with many samples each.

Disturbances only delay. Therefore the least sample is the time on an undisturbed core while the other cores do the same
work, and the median sample is the time under the present disturbances.
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

#: Function with bound arguments that is timed.
Action = Callable[[], object]
Timed = TypeVar("Timed")

#: Bounds of the number of samples, and the least seconds of a sample, which may consist of several runs. A shorter
#: sample would mostly contain the time of reading the clock.
LEAST_SAMPLES, MOST_SAMPLES = 3, 1000
LEAST_SECONDS = 2e-5


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Samples:
    """Least and median seconds of one execution, over several samples."""

    least: float
    median: float

    @staticmethod
    def of(seconds: Sequence[float], executions: int = 1) -> Samples:
        """Summarize samples. ``seconds``: time of a run of ``executions`` executions, for each sample."""
        return Samples(min(seconds) / executions, statistics.median(seconds) / executions)


def tried(action: Action, budget: float) -> list[float]:
    """Return samples of the seconds of one run of ``action``, taken for about ``budget`` seconds after a warm-up run.

    The seconds are processor time of the thread, so other work on the core does not count.
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
    """Return the mean processor time of ``times`` runs of ``action`` on this thread, in seconds."""
    start = time.thread_time()
    for _ in range(times):
        action()
    return (time.thread_time() - start) / times


def each_at_once(actions: Sequence[Action], timed: Callable[[Action], Timed]) -> list[Timed]:
    """Call ``timed`` for each action on a thread of its own, all at the same time after a warm-up run each.

    Thread n runs on the n-th of the cores that this process may use. The actions must release the interpreter's lock
    while they run. Returns the results in the order of the actions.
    """
    barrier, own = Barrier(len(actions)), sorted(os.sched_getaffinity(0))

    def started(number: int, action: Action) -> Timed:
        os.sched_setaffinity(0, {own[number % len(own)]})
        action()
        barrier.wait()
        return timed(action)

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(started, range(len(actions)), actions))
