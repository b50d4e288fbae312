"""Commands of a GPU's plan, and the interface of the device to which they are bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from collectives.communicator.interface import Communicator
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.gpu.collective import GpuCommunicator
from runtime.gpu.driver import GpuDriver, GpuStream
from runtime.gpu.transfers.host_mirror import Mirror
from runtime.gpu.views import DeviceView
from runtime.program.kernel import KernelLibrary
from runtime.program.thunks import Thunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

#: A bound command that can run any number of times: it enqueues work on streams, or decides on the
#: host.
Action: TypeAlias = Callable[[], None]


class GpuProgram(Protocol):
    """Device as seen by commands when they are bound to it."""

    @property
    def driver(self) -> GpuDriver: ...
    @property
    def communicator(self) -> Communicator:
        """Communicator between hosts; collectives use it if ``collectives`` is None."""
        ...

    @property
    def collectives(self) -> GpuCommunicator | None:
        """Communicator between GPUs."""
        ...

    @property
    def host_kernels(self) -> KernelLibrary:
        """Library that computes kernels without GPU code."""
        ...

    @property
    def host(self) -> HostChannel:
        """The host's side: feeds of the present run, and Python functions."""
        ...

    @property
    def is_blocking(self) -> bool:
        """True if this step waits for each collective at its start."""
        ...

    @property
    def uses_graphs(self) -> bool:
        """True if graphs of the plan are captured and launched; otherwise their commands run one by one."""
        ...

    def view(self, array_view: ArrayView) -> DeviceView: ...
    def stream(self, which: Stream) -> GpuStream: ...

    def mirror(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> Mirror:
        """Return a pinned mirror of these arrays, for one command at a time: the next one uses the same memory."""
        ...

    def shared_pinned(self, num_bytes: int) -> NDArray:
        """Return pinned memory from which ``communicator`` reaches its peers fastest."""
        ...

    def workspace(self, num_bytes: int) -> int:
        """Return the address of memory for commands of the compute stream; each uses it exclusively while it runs."""
        ...

    def number_word(self, value: int) -> DeviceView:
        """Return a u32 on the device that always has this value."""
        ...

    @property
    def pending_collectives(self) -> dict[str, PendingCollective]:
        """Collectives in flight by the name of their start; of several calls of one computation, the last bound one.

        Commands are bound in schedule order, so a done finds the start that it waits for.
        """
        ...

    def wait(self, stream: GpuStream) -> None:
        """Let the host wait until all work on ``stream`` is done. Raises RunError if a collective has failed."""
        ...

    def around(self, command: Command, action: Action) -> Action:
        """Return ``action`` of ``command`` with recording for profilers, and position reports to peers."""
        ...


class PendingCollective(Protocol):
    """Collective between its start and its done."""

    def finish(self) -> None:
        """Let the compute stream wait for it; do nothing if that has been done."""
        ...


@dataclass(frozen=True)
class Command(ABC):
    """Command of a plan. ``thunk``: the thunk of which it is a part."""

    thunk: Thunk

    @property
    def name(self) -> str:
        return self.thunk.name

    @property
    def decides(self) -> bool:
        """True if the host must wait or decide, so that the command cannot be part of a graph."""
        return False

    def nested(self) -> Iterator[Command]:
        """Yield the commands that run as part of this one."""
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


def traverse_commands(commands: Sequence[Command]) -> Iterator[Command]:
    """Yield the commands and all that run as part of them, in order."""
    for command in commands:
        yield command
        yield from traverse_commands(tuple(command.nested()))
