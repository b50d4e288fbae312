"""Streams, events and graphs of a device that is the host: work is done as late as CUDA allows, and not in vain.

Nothing on a stream is done until the host waits for it (or for what waits for it): a result that is read too early, or
pinned memory that is written again too early, gives wrong values. Work of two streams on the same bytes that no event
orders is a RaceError when it is put there.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from runtime.gpu.captures import CaptureLock
from tests.runtime.gpu.doubles.races import Bytes, Clock, Races


@dataclass
class HostEvent:
    timed: bool = False
    stream: HostStream | None = None
    position: int = 0
    clock: Clock = field(default_factory=Clock)
    #: How many operations its device had done when it came to pass.
    at: int | None = None

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.device.refuse_in_capture("waiting for an event")
            self.stream.run(self.position)
            self.stream.races.host_knows(self.clock)


@dataclass(frozen=True)
class Op:
    """``run`` it; or wait for an event's stream, as it was recorded by then; or record an event."""

    what: str
    run: Callable[[], None] | None = None
    reads: tuple[Bytes, ...] = ()
    writes: tuple[Bytes, ...] = ()
    waits_for: HostEvent | None = None
    records: HostEvent | None = None


class HostGpu:
    """A GPU of this process: several devices may be on it, each with a driver and a thread."""

    def __init__(self) -> None:
        self.captures = CaptureLock()
        #: Names of the threads that capture a graph on it.
        self.capturing: list[str] = []

    def refuse_beside_captures(self, what: str) -> None:
        """Raise AssertionError for a call that CUDA refuses while any thread captures."""
        others = ", ".join(self.capturing)
        assert not self.capturing, f"{what} while a graph is captured by {others}"

    def synchronize(self) -> None:
        """Do what cudaDeviceSynchronize checks: no thread may capture."""
        self.refuse_beside_captures("waiting for the whole device")


class HostStreams:
    """The state that the streams of one device share."""

    def __init__(self, gpu: HostGpu | None = None) -> None:
        self.gpu = gpu or HostGpu()
        self.races = Races()
        self.capture: Capture | None = None
        self.done = 0
        self.by_handle: dict[int, HostStream] = {}
        self._numbers = itertools.count(1)

    def stream(self, name: str = "stream") -> HostStream:
        number = next(self._numbers)
        made = HostStream(self, f"{name} {number}", number)
        self.by_handle[number] = made
        return made

    def refuse_in_capture(self, what: str) -> None:
        assert self.capture is None, f"{what} while a graph is captured"


class HostStream:
    def __init__(self, device: HostStreams, name: str, ptr: int) -> None:
        self.device, self.name, self.ptr = device, name, ptr
        self.races = device.races
        self.clock = Clock({name: 0})
        self._queue: list[Callable[[], None]] = []
        self._done = 0

    # ---- as CuPy's
    def record(self, event: HostEvent) -> HostEvent:
        self.put(Op("record", records=event))
        return event

    def wait_event(self, event: HostEvent) -> None:
        self.put(Op("wait", waits_for=event))

    def synchronize(self) -> None:
        self.device.refuse_in_capture("waiting for a stream")
        self.run(len(self._queue))
        self.races.host_knows(self.clock)

    def begin_capture(self) -> None:
        self.device.refuse_in_capture("beginning a capture")
        self.device.capture = Capture(self)
        self.device.gpu.capturing.append(threading.current_thread().name)

    def end_capture(self) -> HostGraph:
        capture = self.device.capture
        assert capture is not None
        assert capture.origin is self
        self.device.capture = None
        self.device.gpu.capturing.remove(threading.current_thread().name)
        return capture.graph()

    # ---- what the double's driver does with it
    def put(self, op: Op) -> None:
        capture = self.device.capture
        if capture is not None and capture.takes(self, op):
            return
        self.really_put(op)

    def really_put(self, op: Op) -> None:
        self.clock.join(self.races.host)
        if op.waits_for is not None:
            event = op.waits_for
            self.clock.join(event.clock)
            stream, position = event.stream, event.position
            if stream is not None:
                self._queue.append(lambda: stream.run(position))
        elif op.records is not None:
            op.records.stream, op.records.position = self, len(self._queue) + 1
            op.records.clock = Clock(self.clock)
            self._queue.append(partial(self._come_to_pass, op.records))
        else:
            self.clock[self.name] += 1
            self.races.touch(self.clock, self.name, op.what, list(op.reads), list(op.writes))
            assert op.run is not None
            self._queue.append(op.run)

    def run(self, position: int) -> None:
        """Do what has been put here before ``position``."""
        while self._done < position:
            work = self._queue[self._done]
            self._queue[self._done] = _do_nothing  # work that is done keeps no graph alive
            self._done += 1
            self.device.done += 1
            work()

    def _come_to_pass(self, event: HostEvent) -> None:
        event.at = self.device.done


class Capture:
    """The operations that a graph is made of, and which of its streams ``origin`` knows the ends of."""

    def __init__(self, origin: HostStream) -> None:
        self.origin = origin
        self._ops: list[tuple[HostStream, Op]] = []
        self._clocks: dict[HostStream, Clock] = {origin: Clock()}
        self._events: dict[int, Clock] = {}

    @property
    def streams(self) -> list[HostStream]:
        """Return the streams whose work becomes part of the capture."""
        return list(self._clocks)

    def takes(self, stream: HostStream, op: Op) -> bool:
        """Add ``op`` to the capture if it belongs there, and return whether it does."""
        if stream not in self._clocks:
            known = op.waits_for is not None and id(op.waits_for) in self._events
            if not known:
                return False
            self._clocks[stream] = Clock()
        clock = self._clocks[stream]
        if op.waits_for is not None:
            assert id(op.waits_for) in self._events, "a graph waits for work outside of it"
            clock.join(self._events[id(op.waits_for)])
        elif op.records is not None:
            self._events[id(op.records)] = Clock(clock)
        else:
            clock[stream.name] = clock.get(stream.name, 0) + 1
        self._ops.append((stream, op))
        return True

    def graph(self) -> HostGraph:
        own = self._clocks[self.origin]
        for clock in self._clocks.values():
            for agent, count in clock.items():
                assert own.covers(agent, count), f"a graph ends before its work on {agent}"
        return HostGraph(self.origin, tuple(self._ops))


@dataclass(frozen=True)
class HostGraph:
    origin: HostStream
    ops: tuple[tuple[HostStream, Op], ...]

    def upload(self, stream: HostStream) -> None:
        """Nothing to bring."""

    def launch(self, stream: HostStream) -> None:
        """Its operations on the stream, and on streams that nobody else sees."""
        stream.device.refuse_in_capture("launching a graph")
        streams = {self.origin: stream}
        events: dict[int, HostEvent] = {}
        for own, op in self.ops:
            if own not in streams:
                streams[own] = stream.device.stream("in a graph")
            if op.waits_for is not None:
                op = Op(op.what, waits_for=events[id(op.waits_for)])
            elif op.records is not None:
                events[id(op.records)] = HostEvent()
                op = Op(op.what, records=events[id(op.records)])
            streams[own].really_put(op)


def _do_nothing() -> None:
    pass
