"""Protocols between a device of the CPU back end and the thunks that are loaded into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.native_collective import NativeCollective
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.cpu.step.prepare import Cutting
from runtime.cpu.step.segment import ProgressPoints, TimestampRecorder
from runtime.program.kernel import KernelLibrary
from runtime.program.thunks import Thunk
from spmd.literal import NDArray


class ThunkRecorder(Protocol):
    """Recorder of the times at which thunks begin and end (runtime/timeline/timestamps.py)."""

    def begins(self, thunk: Thunk) -> TimestampRecorder:
        """Return the recorder of the begin of ``thunk``."""
        ...

    def ends(self, thunk: Thunk) -> TimestampRecorder: ...

    def course(self, thunk: Thunk, collective: NativeCollective) -> Sequence[TimestampRecorder]:
        """Return the recorders of the events of ``collective``, for which ``thunk`` has waited."""
        ...

    def waited(self, start: Thunk) -> TimestampRecorder:
        """Return the recorder of the end of the wait at ``start``, in a step that waits where a collective starts."""
        ...


class LoadedProgram(Protocol):
    """A device into which thunks are loaded: its memory, its kernels, and its position among the devices."""

    @property
    def communicator(self) -> Communicator: ...

    @property
    def kernels(self) -> KernelLibrary: ...

    @property
    def bound_collectives(self) -> dict[str, BoundCollective]:
        """Return the bound collectives by the name of their start thunk.

        If a computation is called several times, the entry is that of the call loaded last. Thunks are loaded in
        schedule order, so this is the one for which a done thunk waits.
        """
        ...

    @property
    def num_partitions(self) -> int: ...

    @property
    def host(self) -> HostChannel:
        """Return the channel to the host: the feeds of the present run, and Python functions."""
        ...

    @property
    def position(self) -> memoryview:
        """Return the device's position in its program, into which each row writes the number of its thunk."""
        ...

    def number_of(self, thunk: Thunk) -> int:
        """Return the number of ``thunk`` in the pre-order of the program (``thunk.walk``)."""
        ...

    @property
    def recorder(self) -> ThunkRecorder | None:
        """Return the recorder of the timeline, or None if none is recorded."""
        ...

    @property
    def blocking(self) -> NDArray | None:
        """Return a pred that is true in steps that wait for each collective at its start, or None if no step does."""
        ...

    def array(self, view: ArrayView) -> NDArray:
        """Return the array that ``view`` refers to in this device's memory."""
        ...

    def seconds_of(self, thunk: Thunk) -> float:
        """Return the predicted seconds of ``thunk`` on one thread. Calls must be in the order of execution."""
        ...

    def cutting_of(self, thunk: Thunk) -> Cutting:
        """Return into how many pieces the kernel of ``thunk`` is cut. Calls must be in the order of execution."""
        ...

    @property
    def progress(self) -> ProgressPoints:
        """Return the points at which the device polls collectives in flight."""
        ...
