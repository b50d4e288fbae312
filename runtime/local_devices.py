"""Protocols between an executable, the devices that run it, and the engine that loads it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from collectives.communicator.interface import Communicator
from runtime.arrays.resident import DeviceArray, Place
from runtime.timeline.recorder import RecordedStep
from spmd.literal import NDArray

if TYPE_CHECKING:
    from runtime.executable import Executable


class RunningDevice(Protocol):
    """One device with the program loaded, between steps."""

    @property
    def results(self) -> tuple[Place, ...]:
        """The outputs' places, each of which has the last step's array."""
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
        """An array for parameter leaf ``number``, written by ``fill``: in its place where that is free."""
        ...


class KeepsSteps(Protocol):
    """Record of the last steps' timestamps (runtime/timeline)."""

    @property
    def steps(self) -> list[RecordedStep]: ...


class LocalDevices(Protocol):
    """This process's devices with the program loaded."""

    @property
    def devices(self) -> Sequence[RunningDevice]: ...

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """One step on each, which then has its outputs; an error leaves them of no more use."""
        ...


class Engine(Protocol):
    """Engine that runs programs on devices other than the processor's cores (runtime/gpu/engine.py)."""

    def load_local(self, executable: Executable) -> LocalDevices:
        """The program on all of its devices, in this process."""
        ...

    def load_rank(
        self, executable: Executable, communicator: Communicator, explain: Callable[[int], str]
    ) -> LocalDevices:
        """The program on one device, which the others' ranks have theirs beside. Every rank calls it at the same time.

        explain: what thunk number n is, for messages.
        """
        ...

    def kernel_forms(self, local: LocalDevices) -> KernelForms:
        """Return a report of the kernels of ``local``, which this engine has loaded."""
        ...


class KernelForms(Protocol):
    """Report of an engine's kernels for a program, one line or more of text (runtime/gpu/report.py)."""

    @property
    def hosted(self) -> Sequence[object]:
        """Those that the processor does for the device."""
        ...

    def as_json(self) -> dict[str, object]: ...
