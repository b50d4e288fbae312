"""Events from a step's timestamps: when each thunk ran, loops and their trips, collectives in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from runtime.buffers.types import ArrayView
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    Thunk,
    ThunkSequence,
    traverse,
)
from runtime.timeline.timestamps import Moment, Timestamp, moment_of
from spmd.lazy_dataclass import dataclass


class Stream(Enum):
    """Stream of the timeline to which an event belongs."""

    COMPUTE = "compute"
    """Work that occupies the device: kernels, copies, and waiting."""
    COMMUNICATION = "communication"
    """Collectives from start to done, whether or not the device waits for them."""


@dataclass(frozen=True, slots=True)
class Event:
    """Interval of a step. ``start``, ``end``: nanoseconds of the device's clock; ``bytes``: bytes read and written.

    ``depth``: events of one stream lie within those of lesser depth (a loop, its trips, a kernel).
    A CollectiveDone is a wait. A blocking step has two for each collective, of which the later one waits for nothing.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveEvent(Event):
    """Collective in flight, of stream COMMUNICATION: ``issued`` at ``start``, the wait for it over at ``end``.

    wait_start: when the device began to wait for it. landed: when native code found it complete; native code polls in
    waits and where it makes progress. If Python runs the collective, it is the end of the wait. met: when all peers
    that it needs first were found to have arrived; None if it needs no peer or Python runs it.
    """

    wait_start: int
    landed: int
    met: int | None = None

    @property
    def issued(self) -> int:
        return self.start


def events_of(root: ThunkSequence, timestamps: Sequence[Timestamp]) -> list[Event]:
    """Return a step's events, ordered by their ends."""
    reader = _Reader(root)
    for mark, at in timestamps:
        reader.read(*moment_of(mark), at)
    return reader.events


class _Reader:
    """Reader of a step's timestamps."""

    def __init__(self, root: ThunkSequence) -> None:
        self.events: list[Event] = []
        self._thunks = list(traverse(root))
        self._dones = {x.start: x for x in self._thunks if isinstance(x, CollectiveDoneThunk)}
        self._open: list[int] = []  # start times of open composite thunks, outermost first
        self._issued: dict[str, int] = {}  # start times of the collectives in flight
        self._course: dict[Moment, int] = {}  # of the collective that the device waits for
        self._last = 0

    def read(self, number: int, moment: Moment, at: int) -> None:
        thunk = self._thunks[number]
        if moment in (Moment.MET, Moment.LANDED):
            self._course[moment] = at
            return
        if moment is Moment.BEGINS:
            self._open.append(at)
        elif moment is Moment.ENDS:
            self._ends(thunk, at)
        else:
            self._wait(self._dones[thunk.name], at)
        self._last = at

    def _ends(self, thunk: Thunk, at: int) -> None:
        if isinstance(thunk, CollectiveDoneThunk):
            self._wait(thunk, at)
            return
        start = self._open.pop() if thunk.is_composite else self._last
        self._add(thunk, start, at)
        if isinstance(thunk, CollectiveStartThunk):
            self._issued[thunk.name] = start

    def _wait(self, done: CollectiveDoneThunk, at: int) -> None:
        """Add the wait that has ended. Of two waits in a row, the first one was for the collective."""
        self._add(done, self._last, at)
        issued = self._issued.pop(done.start, None)
        if issued is not None:
            self.events.append(
                CollectiveEvent(
                    done.start,
                    "Collective",
                    Stream.COMMUNICATION,
                    issued,
                    at,
                    _bytes((*done.operands, *done.results)),
                    wait_start=self._last,
                    landed=self._course.get(Moment.LANDED, at),
                    met=self._course.get(Moment.MET) or None,
                )
            )
        self._course.clear()

    def _add(self, thunk: Thunk, start: int, end: int) -> None:
        kind = type(thunk).__name__.removesuffix("Thunk")
        size = _bytes(use.array for use in thunk.buffer_uses())
        self.events.append(
            Event(thunk.name, kind, Stream.COMPUTE, start, end, size, len(self._open))
        )


def _bytes(arrays: Iterable[ArrayView]) -> int:
    return sum(array.view.byte_size for array in arrays)
