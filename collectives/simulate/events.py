"""EventQueue: what happens next."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """Events by time; those of one time in the order in which they were put in."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0

    def put(self, at: float, event: Event) -> None:
        heapq.heappush(self._heap, (at, self._count, event))
        self._count += 1

    def pop(self) -> tuple[float, Event]:
        """Return the next event and its time. Raises IndexError if none is left."""
        at, _, event = heapq.heappop(self._heap)
        return at, event

    def __bool__(self) -> bool:
        return bool(self._heap)
