"""Base class of GPU commands, and the interface of the loaded program to which they are bound."""

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

#: A bound command. Each call enqueues its work on streams, or runs its part on the host.
Action: TypeAlias = Callable[[], None]


class GpuProgram(Protocol):
    """Resources of a loaded program on one GPU, which commands use when they are bound and when they run."""

    @property
    def driver(self) -> GpuDriver:
        """Driver of the GPU."""
        ...

    @property
    def communicator(self) -> Communicator:
        """Communicator between hosts, for collectives that ``collectives`` does not support."""
        ...

    @property
    def collectives(self) -> GpuCommunicator | None:
        """Communicator between GPUs, or None if all collectives go through the host."""
        ...

    @property
    def host_kernels(self) -> KernelLibrary:
        """CPU kernels, for kernels that have neither PTX code nor a library call."""
        ...

    @property
    def host(self) -> HostChannel:
        """Channel to the host: the infeeds and outfeeds of the current run, and Python callbacks."""
        ...

    @property
    def is_blocking(self) -> bool:
        """True if the current step waits for each collective directly after its start, so nothing overlaps."""
        ...

    @property
    def uses_graphs(self) -> bool:
        """True if graph commands are captured and replayed as CUDA graphs; otherwise their commands run one by one."""
        ...

    def view(self, array_view: ArrayView) -> DeviceView:
        """Return ``array_view`` with its address on this device."""
        ...

    def stream(self, which: Stream) -> GpuStream:
        """Return the compute stream or the communication stream."""
        ...

    def mirror(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> Mirror:
        """Return a mirror of these arrays in pinned host memory.

        Mirrors of different commands share memory, so a mirror's content is valid only while its command runs.
        """
        ...

    def shared_pinned(self, num_bytes: int) -> NDArray:
        """Return ``num_bytes`` of pinned host memory, allocated where ``communicator`` transfers it fastest."""
        ...

    def workspace(self, num_bytes: int) -> int:
        """Return the address of ``num_bytes`` of scratch memory on the device.

        Commands of the compute stream share it: it has no content between two commands.
        """
        ...

    def number_word(self, value: int) -> DeviceView:
        """Return a u32 scalar in device memory that always holds ``value``."""
        ...

    @property
    def pending_collectives(self) -> dict[str, PendingCollective]:
        """Asynchronous collectives by the name of their start instruction.

        If a computation is called several times, its starts have equal names, and the last bound one is stored.
        Commands are bound in schedule order, so a done that is being bound finds the start for which it waits.
        """
        ...

    def wait(self, stream: GpuStream) -> None:
        """Block the host until all work on ``stream`` is done. Raises RunError if a collective has failed."""
        ...

    def around(self, command: Command, action: Action) -> Action:
        """Wrap ``action``, the bound ``command``, in timestamps, a profiler range and a position report to peers.

        Each of the three is added only if it is enabled or needed.
        """
        ...


class PendingCollective(Protocol):
    """Asynchronous collective whose done command has not run yet."""

    def finish(self) -> None:
        """Make the compute stream wait for the collective. A second call for the same start has no effect."""
        ...


@dataclass(frozen=True)
class Command(ABC):
    """Command of a GPU program: work for streams, or an action of the host.

    ``thunk`` is the thunk that the command implements, alone or with other commands.
    """

    thunk: Thunk

    @property
    def name(self) -> str:
        """Name for messages, profiles and reports: that of the thunk."""
        return self.thunk.name

    @property
    def decides(self) -> bool:
        """True if the host must wait for the device or act, so that a CUDA graph cannot contain the command."""
        return False

    def nested(self) -> Iterator[Command]:
        """Yield the commands that this command directly contains."""
        return iter(())

    @abstractmethod
    def bind(self, device: GpuProgram) -> Action:
        """Return the action of this command on the memory and streams of ``device``."""
        ...


def on_host(device: GpuProgram, mirror: Mirror, action: Action) -> Action:
    """Return an action that downloads the operands of ``mirror``, runs ``action`` on the host, and uploads the results.

    ``action`` starts when the compute stream is idle.
    """
    driver, stream = device.driver, device.stream(Stream.COMPUTE)

    def run() -> None:
        mirror.bring(driver, stream)
        device.wait(stream)
        action()
        mirror.send(driver, stream)

    return run


def traverse_commands(commands: Sequence[Command]) -> Iterator[Command]:
    """Yield ``commands`` and, recursively, the commands that they contain, each one before its parts."""
    for command in commands:
        yield command
        yield from traverse_commands(tuple(command.nested()))
