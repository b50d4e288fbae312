"""Base class of GPU commands, and the loaded program to whose memory, streams and communicators they are bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from collectives.communicator.interface import Communicator
from collectives.communicator.liveness.status_table import THUNK
from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.gpu.arena import DeviceArena
from runtime.gpu.driver import GpuBlock, GpuDriver, GpuGraph, GpuStream
from runtime.gpu.transfers.host_mirror import Mirror
from runtime.gpu.views import DeviceView
from runtime.program.strides import StridedView
from runtime.program.thunks import CollectiveStartThunk, Thunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: A bound command. Each call enqueues its work on streams, or runs its part on the host.
Action: TypeAlias = Callable[[], None]


class GpuProgram:
    """Resources of a loaded program on one GPU, which commands use when they are bound and when they run.

    ``driver``: driver of the GPU.
    ``communicator``: communicator between hosts, for collectives that ``collectives`` does not support.
    ``collectives``: communicator between GPUs, or None if all collectives go through the host.
    ``host``: channel to the host: the infeeds and outfeeds of the current run, and Python callbacks.
    ``is_blocking``: True if the current step waits for each collective directly after its start, so nothing overlaps.
    ``uses_graphs``: True if graph commands are captured and replayed as CUDA graphs; otherwise their commands run one
        by one.
    ``graphs``: captured CUDA graphs by a key of the command that launches the graph.
    ``pending_collectives``: asynchronous collectives by the name of their start instruction. If a computation is
        called several times, its starts have equal names, and the last bound one is stored. Commands are bound in
        schedule order, so a done that is being bound finds the start for which it waits.
    """

    def __init__(
        self,
        driver: GpuDriver,
        arena: DeviceArena,
        streams: dict[Stream, GpuStream],
        communicator: Communicator,
        collectives: NcclCommunicator | None,
        host: HostChannel,
        *,
        ranges: bool,
        numbers: dict[int, int],
        around: Callable[[Command, Action], Action] | None,
    ) -> None:
        """Store the resources; nothing is allocated yet.

        ranges: each command runs in a profiler range (NVTX) with its name.
        numbers: thunk numbers in the order of ``traverse``, by ``id`` of the thunk.
        around: function that adds timestamps to the action of a command, or None.
        """
        self.driver, self._arena, self._streams = driver, arena, streams
        self.communicator, self.collectives = communicator, collectives
        self.host = host
        self._ranges, self._recorded, self._numbers = ranges, around, numbers
        self.is_blocking = False
        self.uses_graphs = True
        self.graphs: dict[object, GpuGraph] = {}
        self.pending_collectives: dict[str, PendingCollective] = {}
        self._pinned = np.zeros(0, np.uint8)
        self._workspaces: list[GpuBlock] = []
        self._workspace_bytes = 0
        self._constants: dict[int, GpuBlock] = {}
        if collectives is not None:
            collectives.add_program(self)

    def release_graphs(self) -> None:
        """Drop the CUDA graphs. Another thread may call it, after a failure or at the end."""
        self.graphs.clear()

    def view(self, array_view: ArrayView) -> DeviceView:
        """Return ``array_view`` with its address on this device."""
        return self._arena.view(array_view)

    def stream(self, which: Stream) -> GpuStream:
        """Return the compute stream or the communication stream."""
        return self._streams[which]

    def mirror(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> Mirror:
        """Return a mirror of these arrays in pinned host memory.

        Mirrors of different commands share memory, so a mirror's content is valid only while its command runs.
        """
        mirror = Mirror(operands, results, scratch)
        if mirror.num_bytes > self._pinned.size:  # earlier mirrors retain theirs
            self._pinned = self.driver.pinned(max(mirror.num_bytes, 2 * self._pinned.size))
        mirror.lie_in(self._pinned)
        return mirror

    def shared_pinned(self, num_bytes: int) -> NDArray:
        """Return ``num_bytes`` of pinned host memory, allocated where ``communicator`` transfers it fastest."""
        memory: NDArray = self.communicator.allocate(num_bytes)
        if num_bytes:
            self.driver.pin(memory)
        return memory

    def workspace(self, num_bytes: int) -> int:
        """Return the address of ``num_bytes`` of scratch memory on the device.

        Commands of the compute stream share it: it has no content between two commands.
        """
        if num_bytes > self._workspace_bytes or not self._workspaces:
            self._workspaces.append(
                self.driver.allocate(num_bytes)
            )  # earlier commands retain theirs
            self._workspace_bytes = num_bytes
        return self._workspaces[-1].address

    def number_word(self, value: int) -> DeviceView:
        """Return a u32 scalar in device memory that always holds ``value``."""
        if value not in self._constants:
            self._constants[value] = self.driver.allocate(4)
            self._arena.send(self._constants[value].address, np.array([value], np.uint32))
        return DeviceView(self._constants[value].address, StridedView(PrimitiveType.U32, (), ()))

    def wait(self, stream: GpuStream) -> None:
        """Block the host until all work on ``stream`` is done. Raises RunError if a collective has failed."""
        if self.collectives is not None:
            self.collectives.wait(stream.ptr)
        stream.synchronize()

    def around(self, command: Command, action: Action) -> Action:
        """Wrap ``action``, the bound ``command``, in timestamps, a profiler range and a position report to peers.

        Each of the three is added only if it is enabled or needed. The position is needed for thunks at which ranks
        may wait for one another.
        """
        if self._recorded is not None:
            action = self._recorded(command, action)
        if command.decides or isinstance(command.thunk, CollectiveStartThunk):
            action = self._placed(self._numbers[id(command.thunk)], action)
        if not self._ranges:
            return action
        driver, name = self.driver, command.name

        def run() -> None:
            driver.open_range(name)
            action()
            driver.close_range()

        return run

    def _placed(self, number: int, action: Action) -> Action:
        """Return an action that publishes thunk ``number`` as this rank's position, then runs ``action``."""
        position = self.communicator.position

        def run() -> None:
            position[THUNK] = number
            action()

        return run


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


@dataclass(frozen=True)
class HostCommand(Command):
    """Command for which the host waits for the device, or acts."""

    @property
    def decides(self) -> bool:
        return True


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
