"""When one resource can be done with its jobs at the earliest: Jackson's preemptive schedule."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A job of ``seconds`` that cannot begin before ``head``, and after whose end at least ``tail``
    more seconds pass.
    """

    head: float
    seconds: float
    tail: float


def least_end(jobs: Iterable[Job]) -> float:
    """Return the largest lower bound: the maximum, over all sets of jobs, of the least head + all seconds + the least
    tail.

    It is the end of the preemptive schedule in which the job with the longest tail goes first; n log n for n jobs.
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
