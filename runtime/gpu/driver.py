"""What the engine asks of a GPU: streams, events, memory, graphs, and work that is bound to addresses once.

``cuda/driver.py`` answers with CuPy; tests answer with doubles, one that records and one that computes on host memory.
Streams, events and graphs have the names that CuPy gives them, so its objects are passed as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from runtime.gpu.work import Work
from spmd.literal import NDArray

#: Puts work that was bound before on a stream; returns at once.
Enqueue: TypeAlias = Callable[["GpuStream"], None]


class GpuEvent(Protocol):
    """A point of a stream's work."""

    def synchronize(self) -> None:
        """Wait on the host until the work before it is done."""
        ...


class GpuGraph(Protocol):
    """Work that was captured, to be launched any number of times."""

    def launch(self, stream: GpuStream) -> None: ...
    def upload(self, stream: GpuStream) -> None:
        """Bring it to the device, which the first launch does otherwise."""
        ...


class GpuStream(Protocol):
    """Work in order. Another stream's work is ordered with it by events alone."""

    @property
    def ptr(self) -> int:
        """CUDA's handle."""
        ...

    def record(self, event: GpuEvent) -> object: ...
    def wait_event(self, event: GpuEvent) -> None:
        """What comes after it on this stream begins when the work before ``event`` is done."""
        ...

    def synchronize(self) -> None: ...
    def begin_capture(self) -> None:
        """Start capturing this stream, and the streams that wait for it, into a graph. Captured work does not run.

        The thread holds ``GpuDriver.captures`` until ``end_capture`` has returned.
        """
        ...

    def end_capture(self) -> GpuGraph: ...


class GpuBlock(Protocol):
    """Memory of the device, kept as long as the object."""

    @property
    def address(self) -> int: ...


class GpuDriver(Protocol):
    """One GPU. Used by one thread at a time, which has called ``use``."""

    @property
    def name(self) -> str: ...

    @property
    def arch(self) -> str:
        """As ptxas names it: sm_90."""
        ...

    @property
    def multiprocessors(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What calls raise, sooner or later, when work on the device has failed."""
        ...

    @property
    def captures(self) -> AbstractContextManager[None]:
        """The GPU's lock (``CaptureLock``), one for all its drivers in this process. Captures are made under it."""
        ...

    def use(self) -> None:
        """Make it the calling thread's device."""
        ...

    def allocate(self, num_bytes: int) -> GpuBlock:
        """Zeros that begin at a multiple of 256. GpuMemoryError where there is no room."""
        ...

    def allocate_on_host(self, num_bytes: int) -> GpuBlock:
        """Zeros in the host's memory, at a multiple of 256, that kernels on the GPU read and write where they lie."""
        ...

    def pinned(self, num_bytes: int) -> NDArray:
        """Bytes of the host's memory that the GPU reaches: copies to and from them need no host."""
        ...

    def pin(self, memory: NDArray) -> None:
        """Make ``memory``, of which nothing has been pinned yet, such bytes; it has to last as long as the driver."""
        ...

    def stream(self, *, urgent: bool = False) -> GpuStream:
        """urgent: its kernels go first where the device is busy."""
        ...

    def event(self, *, timed: bool = False) -> GpuEvent: ...

    def nanoseconds(self, first: GpuEvent, last: GpuEvent) -> int:
        """Between two timed events that have come to pass."""
        ...

    def upload(self, target: int, source: NDArray, stream: GpuStream) -> None:
        """Bytes of a contiguous array to the device; to last until the stream has come so far where it is pinned."""
        ...

    def download(self, target: NDArray, source: int, stream: GpuStream) -> None: ...

    def copy(self, target: int, source: int, num_bytes: int, stream: GpuStream) -> None:
        """Within the device."""
        ...

    def load(self, work: Work) -> Enqueue:
        """Bind ``work`` to its addresses; modules are loaded and handles made here, not when it is put on a stream."""
        ...

    def open_range(self, name: str) -> None:
        """Begin a range with an operation's name in profilers' pictures (NVTX)."""
        ...

    def close_range(self) -> None: ...
