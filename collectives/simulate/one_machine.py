"""Earliest time at which one resource can complete its jobs: the preemptive schedule of J. R. Jackson.

In the notation of scheduling theory this is 1 | r_j, pmtn | L_max, with heads and tails as release and delivery times.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A job of ``seconds`` that cannot begin before time ``head``. At least ``tail`` seconds pass after its end."""

    head: float
    seconds: float
    tail: float


def least_end(jobs: Iterable[Job]) -> float:
    """Return the least possible end, tails included, of ``jobs`` on one machine with preemption.

    It is the end of the schedule in which, at any time, the available job with the longest tail runs. It equals the
    maximum, over all subsets of jobs, of the least head + the sum of seconds + the least tail. The time is O(n log n)
    for n jobs.
    """
    coming = sorted(jobs, key=lambda job: job.head)
    waiting: list[tuple[float, float]] = []
    now = end = 0.0
    next_one = 0
    while waiting or next_one < len(coming):
        if not waiting:
            now = max(now, coming[next_one].head)
        while next_one < len(coming) and coming[next_one].head <= now:
            job = coming[next_one]
            heapq.heappush(waiting, (-job.tail, job.seconds))
            next_one += 1
        tail, seconds = heapq.heappop(waiting)
        until = coming[next_one].head if next_one < len(coming) else now + seconds
        if now + seconds <= until:
            now += seconds
            end = max(end, now - tail)
        else:
            heapq.heappush(waiting, (tail, seconds - (until - now)))
            now = until
    return end
