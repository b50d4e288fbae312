"""EventQueue: the pending events of a simulation, ordered by time."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """A priority queue of events by time. Events of equal times leave it in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0

    def put(self, at: float, event: Event) -> None:
        """Add ``event`` at time ``at``, in seconds."""
        heapq.heappush(self._heap, (at, self._count, event))
        self._count += 1

    def pop(self) -> tuple[float, Event]:
        """Remove the next event. Returns its time and the event. Raises IndexError if the queue is empty."""
        at, _, event = heapq.heappop(self._heap)
        return at, event

    def __bool__(self) -> bool:
        return bool(self._heap)
