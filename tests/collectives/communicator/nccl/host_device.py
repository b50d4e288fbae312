"""A GPU played on the host's memory: each stream is a thread, which does what is put on it in order.

Addresses are those of NumPy arrays.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from collectives.communicator.nccl.registered_memory import MemoryBlock


def memory_at(address: int, num_bytes: int) -> np.ndarray:
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_char * num_bytes).from_address(address), np.uint8)


class AbortedError(Exception):
    """A kernel that was ended."""


class Stream:
    """Work in order, by a thread of its own."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], None] | None] = deque()
        #: Errors of its work, which goes on after them.
        self.errors: list[BaseException] = []
        self._condition = threading.Condition()
        self.put_count = self.done_count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> int:
        with self._condition:
            self._work.append(work)
            self.put_count += 1
            self._condition.notify_all()
            return self.put_count

    def close(self) -> None:
        with self._condition:
            self._work.append(None)
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._work:
                    self._condition.wait()
                work = self._work.popleft()
            if work is None:
                return
            try:
                work()
            except AbortedError:
                pass
            except BaseException as error:  # noqa: BLE001 - looked at when the device is closed
                self.errors.append(error)
            finally:
                del work  # it may be of a graph that is destroyed
                self.done_count += 1


class Event:
    def __init__(self, streams: dict[int, Stream]) -> None:
        self._streams = streams
        self._stream: Stream | None = None
        self._at = 0

    def record(self, stream: int) -> None:
        self._stream = self._streams[stream]
        self._at = self._stream.put(lambda: None)

    def hold_up(self, stream: int) -> None:
        of, at = self._stream, self._at  # as it is recorded now
        if of is None:
            return

        def wait() -> None:
            while of.done_count < at:
                time.sleep(0.0005)

        self._streams[stream].put(wait)

    def is_done(self) -> bool:
        return self._stream is None or self._stream.done_count >= self._at


@dataclass
class HostMemory:
    """A MemoryBlock."""

    memory: np.ndarray

    @property
    def ptr(self) -> int:
        return int(self.memory.ctypes.data)


class Device(Protocol):
    """A device on whose streams NCCL's kernels run."""

    def allocate(self, num_bytes: int) -> MemoryBlock: ...

    def is_capturing(self, stream: int) -> bool: ...

    def put(
        self,
        stream: int,
        work: Callable[[], None],
        reads: Sequence[tuple[int, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
    ) -> None: ...


class HostDevice:
    """A double of CudaMemory whose GPU is this process: addresses are the host's."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {1: Stream(), 2: Stream()}
        #: Streams of which a graph is made; what is put there is kept for it.
        self.captures: dict[int, list[Callable[[], None]]] = {}

    def __enter__(self) -> HostDevice:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End its threads. Raises what went wrong in their work."""
        for stream in self.streams.values():
            stream.close()
        for error in (error for stream in self.streams.values() for error in stream.errors):
            raise error

    def use(self) -> None:
        pass

    def allocate(self, num_bytes: int) -> HostMemory:
        return HostMemory(np.full(num_bytes, 0xA5, np.uint8))

    def put(
        self,
        stream: int,
        work: Callable[[], None],
        reads: Sequence[tuple[int, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
    ) -> None:
        """reads, writes: addresses and bytes, for a device that looks after them."""
        if stream in self.captures:
            self.captures[stream].append(work)
        else:
            self.streams[stream].put(work)

    def is_capturing(self, stream: int) -> bool:
        return stream in self.captures

    def begin_capture(self, stream: int) -> None:
        self.captures[stream] = []

    def end_capture(self, stream: int) -> list[Callable[[], None]]:
        """A graph: its work in order."""
        return self.captures.pop(stream)

    def event(self) -> Event:
        return Event(self.streams)

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        self.copy_rows(target, num_bytes, source, num_bytes, num_bytes, 1, stream)

    def copy_rows(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        row_bytes: int,
        rows: int,
        stream: int,
    ) -> None:
        assert row_bytes <= target_pitch or rows == 1, (
            "cudaMemcpy2D: the pitch is less than the width"
        )
        assert row_bytes <= source_pitch or rows == 1
        assert row_bytes * rows > 0

        def work() -> None:
            for row in range(rows):
                to = memory_at(target + row * target_pitch, row_bytes)
                of = memory_at(source + row * source_pitch, row_bytes)
                to[:] = of

        self.put(stream, work)

    def zero(self, target: int, num_bytes: int, stream: int) -> None:
        self.put(stream, lambda: memory_at(target, num_bytes).fill(0))
