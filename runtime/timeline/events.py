"""From a step's stamps to events: which thunk ran from when to when, loops and their trips, collectives in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from runtime.buffers.types import ArrayView
from runtime.thunks.collective import CollectiveDoneThunk, CollectiveStartThunk
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import Thunk, walk
from runtime.timeline.recorder import Stamp


class Stream(Enum):
    COMPUTE = "compute"
    """What occupies the device: kernels, copies, and waiting."""
    COMMUNICATION = "communication"
    """Collectives from start to done, whether or not anything waits for them."""


@dataclass(frozen=True, slots=True)
class Event:
    """``start`` and ``end`` in nanoseconds of the device's clock; ``bytes``: what it reads and writes.

    ``depth``: events of one stream lie within those of lesser depth (a loop, its trips, a kernel).
    """

    name: str
    kind: str
    stream: Stream
    start: int
    end: int
    bytes: int = 0
    depth: int = 0

    @property
    def nanoseconds(self) -> int:
        return self.end - self.start


def events_of(root: ThunkSequence, stamps: Sequence[Stamp]) -> list[Event]:
    """A step's events in the order in which they end."""
    thunks = list(walk(root))
    events: list[Event] = []
    open_thunks: list[int] = []  # when they began, outermost first
    in_flight: dict[str, int] = {}
    last = 0
    for number, at in stamps:
        if number < 0:
            open_thunks.append(at)
            last = at
            continue
        thunk = thunks[number]
        start = open_thunks.pop() if _has_others_inside(thunk) else last
        events.append(_event(thunk, start, at, len(open_thunks)))
        if isinstance(thunk, CollectiveStartThunk):
            in_flight[thunk.name] = start
        if isinstance(thunk, CollectiveDoneThunk):
            began = in_flight.pop(thunk.start)
            size = _bytes((*thunk.operands, *thunk.results))
            events.append(Event(thunk.start, "Collective", Stream.COMMUNICATION, began, at, size))
        last = at
    return events


def _event(thunk: Thunk, start: int, end: int, depth: int) -> Event:
    kind = type(thunk).__name__.removesuffix("Thunk")
    size = _bytes([use.place for use in thunk.buffer_uses()])
    return Event(thunk.name, kind, Stream.COMPUTE, start, end, size, depth)


def _has_others_inside(thunk: Thunk) -> bool:
    return next(thunk.nested(), None) is not None or isinstance(thunk, ThunkSequence)


def _bytes(places: Iterable[ArrayView]) -> int:
    return sum(place.view.byte_size for place in places)
