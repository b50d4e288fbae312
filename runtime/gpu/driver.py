"""Interface of a GPU driver: streams, events, memory, graphs, and work bound to addresses.

``cuda/driver.py`` implements it with CuPy; tests use doubles, one that records and one that computes on host memory.
Streams, events and graphs have CuPy's method names, so CuPy objects are passed unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from runtime.gpu.work import Work
from spmd.literal import NDArray

#: Function that enqueues bound work on a stream; it returns at once.
Enqueue: TypeAlias = Callable[["GpuStream"], None]

_FIRST_WITH_F8 = 89


class GpuEvent(Protocol):
    """Point in a stream's work."""

    def synchronize(self) -> None:
        """Wait on the host until the work before it is done."""
        ...


class GpuGraph(Protocol):
    """Captured work that can be launched any number of times."""

    def launch(self, stream: GpuStream) -> None: ...
    def upload(self, stream: GpuStream) -> None:
        """Upload it to the device. Otherwise the first launch does."""
        ...


class GpuStream(Protocol):
    """Ordered work. Only events order it with another stream's work."""

    @property
    def ptr(self) -> int:
        """The handle of CUDA."""
        ...

    def record(self, event: GpuEvent) -> object: ...
    def wait_event(self, event: GpuEvent) -> None:
        """Let later work on this stream begin only when the work before ``event`` is done."""
        ...

    def synchronize(self) -> None: ...
    def begin_capture(self) -> None:
        """Start capturing this stream, and the streams that wait for it, into a graph. Captured work does not run.

        The thread must hold ``GpuDriver.captures`` until ``end_capture`` has returned.
        """
        ...

    def end_capture(self) -> GpuGraph: ...


class GpuBlock(Protocol):
    """Device memory, which lives as long as the object."""

    @property
    def address(self) -> int: ...


class GpuDriver(Protocol):
    """One GPU. One thread at a time uses it, after it has called ``use``."""

    @property
    def name(self) -> str: ...

    @property
    def arch(self) -> str:
        """The architecture name of ptxas: sm_90."""
        ...

    @property
    def multiprocessors(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """The exceptions that calls raise, possibly later, when work on the device has failed."""
        ...

    @property
    def captures(self) -> AbstractContextManager[None]:
        """The GPU's lock (``CaptureLock``), shared by all its drivers in this process. Captures require it."""
        ...

    def use(self) -> None:
        """Make it the calling thread's device."""
        ...

    def allocate(self, num_bytes: int) -> GpuBlock:
        """Allocate zeros, aligned to 256 bytes. Raises GpuMemoryError if there is no room."""
        ...

    def allocate_on_host(self, num_bytes: int) -> GpuBlock:
        """Allocate zeros in host memory, aligned to 256 bytes, that kernels on the GPU access in place."""
        ...

    def pinned(self, num_bytes: int) -> NDArray:
        """Allocate pinned host memory, which is copied from and to the GPU without the host."""
        ...

    def pin(self, memory: NDArray) -> None:
        """Pin ``memory``, no part of which is pinned yet; it must live as long as the driver."""
        ...

    def stream(self, *, urgent: bool = False) -> GpuStream:
        """Create a stream. urgent: its kernels have priority when the device is busy."""
        ...

    def event(self, *, timed: bool = False) -> GpuEvent: ...

    def nanoseconds(self, first: GpuEvent, last: GpuEvent) -> int:
        """Return the nanoseconds between two timed events that have occurred."""
        ...

    def upload(self, target: int, source: NDArray, stream: GpuStream) -> None:
        """Copy a contiguous array to the device. If it is pinned, it must stay unchanged until the copy is done."""
        ...

    def download(self, target: NDArray, source: int, stream: GpuStream) -> None: ...

    def copy(self, target: int, source: int, num_bytes: int, stream: GpuStream) -> None:
        """Copy within the device."""
        ...

    def load(self, work: Work) -> Enqueue:
        """Bind ``work`` to its addresses. This loads modules and creates handles, so enqueuing does not."""
        ...

    def open_range(self, name: str) -> None:
        """Begin a profiler range (NVTX) with an operation's name."""
        ...

    def close_range(self) -> None: ...


def multiplies_f8(arch: str) -> bool:
    """Return whether tensor cores of ``arch`` (sm_90) multiply numbers of 8 bits."""
    return int("".join(filter(str.isdigit, arch))) >= _FIRST_WITH_F8
