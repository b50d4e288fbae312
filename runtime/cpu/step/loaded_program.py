"""Protocols between a device of the CPU back end and the thunks that it loads."""

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
        """Return the recorder of the thunk's begin."""
        ...

    def ends(self, thunk: Thunk) -> TimestampRecorder: ...

    def course(self, thunk: Thunk, collective: NativeCollective) -> Sequence[TimestampRecorder]:
        """Return the recorders of the course of ``collective``, for which ``thunk`` has waited."""
        ...

    def waited(self, start: Thunk) -> TimestampRecorder:
        """Return the recorder of the end of a blocking step's wait for the collective of ``start``."""
        ...


class LoadedProgram(Protocol):
    """Device into which thunks are loaded: its memory, kernels, and position among the devices."""

    @property
    def communicator(self) -> Communicator: ...

    @property
    def kernels(self) -> KernelLibrary: ...

    @property
    def bound_collectives(self) -> dict[str, BoundCollective]:
        """Collectives by the name of their start; of several calls of one computation, the one loaded last.

        Thunks are loaded in schedule order, so a done waits for the one loaded last.
        """
        ...

    @property
    def num_partitions(self) -> int: ...

    @property
    def host(self) -> HostChannel:
        """Return the host's side: feeds of the present run, and Python functions."""
        ...

    @property
    def position(self) -> memoryview:
        """The device's position in its program, into which each row writes its thunk's number."""
        ...

    def number_of(self, thunk: Thunk) -> int:
        """Return the thunk's number in pre-order of the program (``thunk.walk``)."""
        ...

    @property
    def recorder(self) -> ThunkRecorder | None:
        """The recorder of the timeline; None if none is recorded."""
        ...

    @property
    def blocking(self) -> NDArray | None:
        """A pred that is true in steps that wait for each collective at its start; None if no step does."""
        ...

    def array(self, view: ArrayView) -> NDArray:
        """Return the array that ``view`` names in this device's memory."""
        ...

    def seconds_of(self, thunk: Thunk) -> float:
        """Return the predicted seconds of the thunk on one thread. It is called in the order of execution."""
        ...

    def cutting_of(self, thunk: Thunk) -> Cutting:
        """Return how the thunk's work is cut. It is called in the order of execution."""
        ...

    @property
    def progress(self) -> ProgressPoints:
        """The points at which the device polls collectives in flight."""
        ...
