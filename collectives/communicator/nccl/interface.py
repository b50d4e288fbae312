"""Interfaces that collectives among GPUs require of a GPU and of the communicator among the processes.

They do not depend on CUDA: addresses and streams are integers.
"""

from __future__ import annotations

from typing import Protocol

from collectives.communicator.interface import Communicator
from collectives.communicator.wait_context import WaitingWorld


class HostCommunicator(Communicator, WaitingWorld, Protocol):
    """A communicator among processes with the waiting functions that collectives among GPUs need."""


class DeviceEvent(Protocol):
    """An event that marks a point on a stream. It may be recorded any number of times."""

    def record(self, stream: int) -> None:
        """Mark the present end of the work on ``stream``."""
        ...

    def hold_up(self, stream: int) -> None:
        """Have work that is enqueued on ``stream`` from now on wait for this event."""
        ...

    def is_done(self) -> bool:
        """Return whether the stream has reached the point where this event was recorded last.

        Raises RunError if earlier work on the GPU failed.
        """
        ...


class DeviceMemory(Protocol):
    """The memory of one GPU. Copies are enqueued on a stream and do not block. Sizes are in bytes."""

    def allocate(self, num_bytes: int) -> int:
        """Allocate ``num_bytes`` bytes on the GPU and return their address, a multiple of 256.

        The memory is freed with this object. Raises RunError if there is not enough memory.
        """
        ...

    def event(self) -> DeviceEvent:
        """Return a new event."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Return whether work on ``stream`` becomes part of a CUDA graph instead of running."""
        ...

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        """Enqueue a copy of ``num_bytes`` bytes from ``source`` to ``target``."""
        ...

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
        ...

    def zero(self, target: int, num_bytes: int, stream: int) -> None:
        """Enqueue the clearing of ``num_bytes`` bytes at ``target``."""
        ...
