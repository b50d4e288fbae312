"""Interfaces of collectives among GPUs: what they are bound to, and what they need of a GPU and of the processes'
communicator.

Nothing here knows CUDA: addresses and streams are integers.
"""

from __future__ import annotations

from typing import Protocol

from collectives.communicator.interface import Communicator
from collectives.communicator.wait_context import WaitingWorld


class HostCommunicator(Communicator, WaitingWorld, Protocol):
    """Communicator among processes, as collectives among GPUs need it."""


class DeviceEvent(Protocol):
    """A place on a stream, which may be recorded again and again."""

    def record(self, stream: int) -> None: ...

    def hold_up(self, stream: int) -> None:
        """Make later work on ``stream`` wait for this event."""
        ...

    def is_done(self) -> bool:
        """Return whether the stream has reached the point where this event was recorded last. Raises RunError if
        earlier work failed.
        """
        ...


class DeviceMemory(Protocol):
    """One GPU's memory, as collectives use it. Copies only put work on a stream."""

    def allocate(self, num_bytes: int) -> int:
        """Address of memory on the GPU, aligned to 256 bytes, that lives as long as this object."""
        ...

    def event(self) -> DeviceEvent: ...

    def is_capturing(self, stream: int) -> bool:
        """Return whether work on ``stream`` becomes part of a CUDA graph instead of running."""
        ...

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None: ...

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
        """``rows`` rows of ``row_bytes`` bytes; pitches are the bytes from one row's begin to the next one's."""
        ...

    def zero(self, target: int, num_bytes: int, stream: int) -> None: ...
