"""What a GPU's plan is made of: steps, and what they are given when a device loads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from collectives.communicator.interface import Communicator
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.gpu.collective import GpuCommunicator
from runtime.gpu.driver import GpuDriver, GpuStream
from runtime.gpu.hosted_memory import Mirror
from runtime.gpu.views import DeviceView
from runtime.program.kernel import KernelLibrary
from runtime.program.thunks.thunk import Thunk
from runtime.timeline.events import Stream
from spmd.literal import NDArray

#: One step on a device, ready to be done any number of times: puts work on streams, or decides on the host.
Action: TypeAlias = Callable[[], None]


class GpuProgram(Protocol):
    """A device as steps see it when they are bound to it."""

    @property
    def driver(self) -> GpuDriver: ...
    @property
    def communicator(self) -> Communicator:
        """Between hosts; collectives go through it where ``collectives`` is None."""
        ...

    @property
    def collectives(self) -> GpuCommunicator | None:
        """Between GPUs."""
        ...

    @property
    def host_kernels(self) -> KernelLibrary:
        """What computes what has no form on a GPU."""
        ...

    @property
    def host(self) -> HostChannel:
        """Return the host's side: feeds of the present run, and Python functions."""
        ...

    @property
    def is_blocking(self) -> bool:
        """Whether this step waits for each collective at its start."""
        ...

    @property
    def uses_graphs(self) -> bool:
        """Say whether graphs of the plan are captured and launched; otherwise their steps are done one by one."""
        ...

    def view(self, place: ArrayView) -> DeviceView: ...
    def stream(self, which: Stream) -> GpuStream: ...

    def mirror(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> Mirror:
        """Pinned memory beside these arrays, for one step at a time: the next one uses the same."""
        ...

    def shared_pinned(self, num_bytes: int) -> NDArray:
        """Pinned memory from where ``communicator`` reaches its peers fastest."""
        ...

    def workspace(self, num_bytes: int) -> int:
        """The address of memory for steps of the compute stream, each of which has it for itself while it runs."""
        ...

    def number_word(self, value: int) -> DeviceView:
        """A u32 on the device that is ``value`` for ever."""
        ...

    @property
    def flights(self) -> dict[str, Flight]:
        """Collectives by the name of their start; of several calls of one computation, the one bound last.

        Steps are bound in the order of the schedule, so that is the one that a done waits for.
        """
        ...

    def wait(self, stream: GpuStream) -> None:
        """The host waits until all that is on ``stream`` is done. RunError where a collective has failed."""
        ...

    def around(self, step: Step, action: Action) -> Action:
        """``action``, which is ``step``, with what profilers want to know of it, and peers that wait for this rank."""
        ...


class Flight(Protocol):
    """A collective between its start and its done."""

    def finish(self) -> None:
        """Have the compute stream wait for it, and for nothing where that has been done."""
        ...


@dataclass(frozen=True)
class Step(ABC):
    """``thunk``: what it is (part of)."""

    thunk: Thunk

    @property
    def name(self) -> str:
        return self.thunk.name

    @property
    def decides(self) -> bool:
        """Whether the host has to wait or to choose: then it is no part of a graph."""
        return False

    def nested(self) -> Iterator[Step]:
        """Steps that run as part of this one."""
        return iter(())

    @abstractmethod
    def bind(self, device: GpuProgram) -> Action: ...


def on_host(device: GpuProgram, mirror: Mirror, action: Action) -> Action:
    """Return an action that runs `action` on the host, between copies of the mirror's arrays from and to the device."""
    driver, stream = device.driver, device.stream(Stream.COMPUTE)

    def run() -> None:
        mirror.bring(driver, stream)
        device.wait(stream)
        action()
        mirror.send(driver, stream)

    return run


def walk_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps and all that run as part of them, in order."""
    for step in steps:
        yield step
        yield from walk_steps(tuple(step.nested()))
