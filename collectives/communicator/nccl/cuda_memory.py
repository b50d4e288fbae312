"""GPU memory and events for collectives, by CuPy's bindings of the CUDA runtime. Addresses and streams are integers.

Objects must be created and used by a thread whose current device is the GPU (``cudaSetDevice``).
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

from cupy.cuda import memory, runtime

from spmd.errors import RunError

if TYPE_CHECKING:
    from collectives.communicator.nccl.registered_memory import MemoryBlock

_NOT_READY = 600
"""Value of cudaErrorNotReady."""


class CudaEvent:
    """A CUDA event without timing, which marks a point on a stream. It may be recorded any number of times."""

    def __init__(self) -> None:
        self._event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
        weakref.finalize(self, _destroy_event, self._event)

    def record(self, stream: int) -> None:
        """Mark the present end of the work on ``stream``."""
        runtime.eventRecord(self._event, stream)

    def hold_up(self, stream: int) -> None:
        """Have work that is enqueued on ``stream`` from now on wait for this event."""
        runtime.streamWaitEvent(stream, self._event)

    def is_done(self) -> bool:
        """Return whether the stream has reached the point where this event was recorded last.

        Raises RunError if earlier work on the GPU failed.
        """
        status = runtime.eventQuery(self._event)  # returns errors, raises none
        if status not in (0, _NOT_READY):
            raise RunError(f"the GPU failed: {runtime.CUDARuntimeError(status)}")
        return bool(status == 0)


class CudaMemory:
    """The memory of the GPU that is current when it is created. Copies are enqueued on a stream and do not block."""

    def __init__(self) -> None:
        self._device = runtime.getDevice()

    def use(self) -> None:
        """Make the GPU the current one of the calling thread, whose calls would use GPU 0 otherwise."""
        with contextlib.suppress(runtime.CUDARuntimeError):  # the GPU may have failed
            runtime.setDevice(self._device)

    def allocate(self, num_bytes: int) -> MemoryBlock:
        """Allocate ``num_bytes`` bytes on the GPU. Raises RunError if there is not enough memory."""
        try:
            # Not from CuPy's pool, since the memory lives as long as the program.
            block: MemoryBlock = memory.Memory(num_bytes)
        except (memory.OutOfMemoryError, runtime.CUDARuntimeError) as error:
            raise RunError(f"{num_bytes:,} bytes of a GPU for collectives: {error}") from error
        return block

    def event(self) -> CudaEvent:
        return CudaEvent()

    def is_capturing(self, stream: int) -> bool:
        """Return whether work on ``stream`` becomes part of a CUDA graph instead of running."""
        return bool(runtime.streamIsCapturing(stream))

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        """Enqueue a copy of ``num_bytes`` bytes from ``source`` to ``target``."""
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(target, source, num_bytes, kind, stream)

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
        """Enqueue a copy of ``rows`` rows of ``row_bytes`` bytes. A pitch is the distance of the starts of two rows."""
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpy2DAsync(
            target, target_pitch, source, source_pitch, row_bytes, rows, kind, stream
        )

    def zero(self, target: int, num_bytes: int, stream: int) -> None:
        """Enqueue the clearing of ``num_bytes`` bytes at ``target``."""
        runtime.memsetAsync(target, 0, num_bytes, stream)


def _destroy_event(event: int) -> None:
    with contextlib.suppress(runtime.CUDARuntimeError):  # the context may be gone by then
        runtime.eventDestroy(event)
