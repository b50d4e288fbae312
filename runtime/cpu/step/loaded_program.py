"""Interface of a device of the CPU back end to the thunks that it loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.native_collective import NativeCollective
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.cpu.sharing.cutting import Cutting
from runtime.cpu.step.polling_points import ProgressPoints
from runtime.cpu.step.segment import Stamps
from runtime.program.kernel import KernelLibrary
from runtime.program.thunks.thunk import Thunk
from spmd.literal import NDArray


class StampsThunks(Protocol):
    """Takes down when thunks begin and end (runtime/timeline/timestamps.py)."""

    def begins(self, thunk: Thunk) -> Stamps:
        """Return what records that the thunk begins."""
        ...

    def ends(self, thunk: Thunk) -> Stamps: ...

    def course(self, thunk: Thunk, collective: NativeCollective) -> Sequence[Stamps]:
        """Return what records the course of ``collective``, for which ``thunk`` has waited."""
        ...

    def waited(self, start: Thunk) -> Stamps:
        """Return what records that a blocking step has waited for the collective of ``start``."""
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

        Thunks are loaded in the order of the schedule, so that is the one that a done waits for.
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
        """Words that say where the device is in its program; each row writes its thunk's number."""
        ...

    def number_of(self, thunk: Thunk) -> int:
        """The thunk's place in ``walk``'s order of the program."""
        ...

    @property
    def recorder(self) -> StampsThunks | None:
        """None, as ever unless a timeline was asked for: then nothing of it costs anything."""
        ...

    @property
    def blocking(self) -> NDArray | None:
        """A pred: whether this step waits for each collective at its start. None where no step does."""
        ...

    def array(self, place: ArrayView) -> NDArray:
        """The array in this device's memory."""
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
