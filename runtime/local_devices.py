"""Protocols between an executable, the devices that run it, and the engine that loads it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from collectives.communicator.interface import Communicator
from runtime.arrays.slots import ArraySlot, DeviceArray
from runtime.timeline.timestamps import RecordedStep
from spmd.literal import NDArray

if TYPE_CHECKING:
    from runtime.executable import Executable


class RunningDevice(Protocol):
    """Device with the program loaded, between steps."""

    @property
    def results(self) -> tuple[ArraySlot, ...]:
        """The array slots of the outputs. Each has the last step's array."""
        ...

    @property
    def outputs(self) -> tuple[DeviceArray, ...]:
        """Outputs of the last successful step. They stay valid until the next step starts."""
        ...

    @property
    def recorder(self) -> KeepsSteps | None:
        """Recorder of thunk timestamps; None if the program does not record."""
        ...

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """Return an array for parameter leaf ``number``, written by ``fill``, in the parameter's slot if free."""
        ...


class KeepsSteps(Protocol):
    """Record of the last steps' timestamps (runtime/timeline)."""

    @property
    def steps(self) -> list[RecordedStep]: ...


class LocalDevices(Protocol):
    """The devices of this process with the program loaded."""

    @property
    def devices(self) -> Sequence[RunningDevice]: ...

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run one step on each device, which then has its outputs. After an error the devices must not be used."""
        ...


class Engine(Protocol):
    """Engine that runs programs on devices other than the processor's cores (runtime/gpu/engine.py)."""

    def load_local(self, executable: Executable) -> LocalDevices:
        """Load the program on all of its devices, in this process."""
        ...

    def load_rank(
        self, executable: Executable, communicator: Communicator, explain: Callable[[int], str]
    ) -> LocalDevices:
        """Load the program on one device; the other ranks load theirs. Every rank calls it at the same time.

        explain: returns the text for thunk number n in messages.
        """
        ...

    def kernel_report(self, local: LocalDevices) -> KernelReport:
        """Return a report of the kernels of ``local``, which this engine has loaded."""
        ...


class KernelReport(Protocol):
    """Report of an engine's kernels for a program, one line or more of text (runtime/gpu/report.py)."""

    @property
    def hosted(self) -> Sequence[tuple[str, str]]:
        """Kernels that the processor runs for the device, as (kind, thunk)."""
        ...

    def as_json(self) -> dict[str, object]: ...
