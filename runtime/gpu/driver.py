"""Interface of a GPU driver: streams, events, memory, graphs, and work bound to addresses.

``cuda/driver.py`` implements the interface with CuPy. Tests use two doubles: one records calls, one computes on host
memory. Streams, events and graphs have CuPy's method names, so CuPy objects implement them without wrappers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from collectives.communicator.nccl.registered_memory import MemoryBlock
from runtime.gpu.work import Work
from spmd.literal import NDArray

#: Function that allocates a number of bytes on the current GPU, with undefined content.
Allocator: TypeAlias = Callable[[int], MemoryBlock]

#: Function that enqueues bound work on a stream; it returns at once.
Enqueue: TypeAlias = Callable[["GpuStream"], None]

_FIRST_WITH_F8 = 89


class GpuEvent(Protocol):
    """Point in the work of a stream (a CUDA event)."""

    def synchronize(self) -> None:
        """Block the host until the work that precedes the event is done."""
        ...


class GpuGraph(Protocol):
    """Captured work that can be launched any number of times (an instantiated CUDA graph)."""

    def launch(self, stream: GpuStream) -> None:
        """Enqueue the graph's work on ``stream``."""
        ...

    def upload(self, stream: GpuStream) -> None:
        """Upload the graph to the device, so that the first launch does not have to."""
        ...


class GpuStream(Protocol):
    """Queue of work that the device runs in order (a CUDA stream). Only events order it with other streams."""

    @property
    def ptr(self) -> int:
        """CUDA's handle (cudaStream_t)."""
        ...

    def record(self, event: GpuEvent) -> object:
        """Make ``event`` occur when the work enqueued so far is done."""
        ...

    def wait_event(self, event: GpuEvent) -> None:
        """Make later work on this stream wait until the work that precedes ``event`` is done."""
        ...

    def synchronize(self) -> None:
        """Block the host until the work enqueued so far is done."""
        ...

    def begin_capture(self) -> None:
        """Start capturing this stream, and the streams that wait for it, into a CUDA graph. Captured work does not run.

        The calling thread must hold ``GpuDriver.captures`` until ``end_capture`` has returned.
        """
        ...

    def end_capture(self) -> GpuGraph:
        """End the capture and return the instantiated graph."""
        ...


class GpuBlock(Protocol):
    """Memory that a GPU can access. It is freed when the object is garbage-collected."""

    @property
    def address(self) -> int:
        """Device address of the first byte."""
        ...


class GpuDriver(Protocol):
    """Driver of one GPU. One thread at a time may use it, after that thread has called ``use``."""

    @property
    def name(self) -> str:
        """Model name of the GPU."""
        ...

    @property
    def arch(self) -> str:
        """Architecture name as ptxas takes it, for example sm_90."""
        ...

    @property
    def multiprocessors(self) -> int:
        """Number of streaming multiprocessors."""
        ...

    @property
    def free_bytes(self) -> int:
        """Bytes of device memory that are free now, for all processes."""
        ...

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Exception classes that calls raise if work on the device fails. CUDA may report a failure at a later call."""
        ...

    @property
    def captures(self) -> AbstractContextManager[None]:
        """Lock of the GPU (``CaptureLock``), shared by all its drivers in this process. A capture requires it."""
        ...

    def use(self) -> None:
        """Make this GPU the current device of the calling thread."""
        ...

    def allocate(self, num_bytes: int, allocator: Allocator | None = None) -> GpuBlock:
        """Allocate ``num_bytes`` zero bytes of device memory, aligned to 256, by ``allocator`` if it is not None.

        Raises GpuMemoryError if too few bytes are free.
        """
        ...

    def allocate_on_host(self, num_bytes: int) -> GpuBlock:
        """Allocate ``num_bytes`` zero bytes of host memory, aligned to 256, which GPU kernels access in place."""
        ...

    def pinned(self, num_bytes: int) -> NDArray:
        """Allocate ``num_bytes`` of pinned (page-locked) host memory, which copy engines transfer asynchronously."""
        ...

    def pin(self, memory: NDArray) -> None:
        """Pin the existing host memory ``memory``, no part of which may be pinned yet, if the operating system can.

        The memory must live as long as the driver.
        """
        ...

    def stream(self, *, urgent: bool = False) -> GpuStream:
        """Create a stream. urgent: its kernels have priority over those of other streams."""
        ...

    def event(self, *, timed: bool = False) -> GpuEvent:
        """Create an event. timed: ``nanoseconds`` accepts it."""
        ...

    def nanoseconds(self, first: GpuEvent, last: GpuEvent) -> int:
        """Return the nanoseconds from ``first`` to ``last``, two timed events that have occurred."""
        ...

    def upload(self, target: int, source: NDArray, stream: GpuStream) -> None:
        """Copy the contiguous host array ``source`` to address ``target``, in order with the work of ``stream``.

        If ``source`` is pinned, the copy is asynchronous, and ``source`` must stay unchanged until it is done.
        """
        ...

    def download(self, target: NDArray, source: int, stream: GpuStream) -> None:
        """Copy from address ``source`` to the contiguous host array ``target``, in order with work of ``stream``."""
        ...

    def copy(self, target: int, source: int, num_bytes: int, stream: GpuStream) -> None:
        """Copy ``num_bytes`` from address ``source`` to address ``target`` within the device."""
        ...

    def load(self, work: Work) -> Enqueue:
        """Return a function that enqueues ``work`` on a stream.

        Modules are loaded and library handles created here, so that enqueuing is fast.
        """
        ...

    def open_range(self, name: str) -> None:
        """Begin a profiler range (NVTX) of the calling thread. Ranges nest."""
        ...

    def close_range(self) -> None:
        """End the innermost profiler range of the calling thread."""
        ...


def multiplies_f8(arch: str) -> bool:
    """Return whether the tensor cores of ``arch`` (for example sm_90) multiply f8 operands: sm_89 and later do."""
    return int("".join(filter(str.isdigit, arch))) >= _FIRST_WITH_F8
