"""Binding of commands to a device: memory, streams, staging, collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator.interface import Communicator
from collectives.communicator.liveness.status_table import THUNK
from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.gpu.arena import DeviceArena
from runtime.gpu.collective import GpuCommunicator
from runtime.gpu.command import Action, Command, PendingCollective
from runtime.gpu.commands.collective import StartCommand
from runtime.gpu.driver import GpuBlock, GpuDriver, GpuStream
from runtime.gpu.transfers.host_mirror import Mirror
from runtime.gpu.views import DeviceView
from runtime.program.kernel import KernelLibrary
from runtime.program.strides import StridedView
from runtime.timeline.events import Stream
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


class Binding:
    """GpuProgram of one device. Commands are bound to its memory, streams, communicators and workspaces."""

    def __init__(
        self,
        driver: GpuDriver,
        arena: DeviceArena,
        streams: dict[Stream, GpuStream],
        communicator: Communicator,
        collectives: GpuCommunicator | None,
        host_kernels: KernelLibrary,
        host: HostChannel,
        *,
        ranges: bool,
        numbers: dict[int, int],
        around: Callable[[Command, Action], Action] | None,
    ) -> None:
        """Create the binding; it allocates nothing yet.

        collectives: communicator between GPUs, or None if collectives go through the host's ``communicator``.
        ranges: each command runs in a profiler range (NVTX) with its name.
        numbers: thunk numbers in the order of ``traverse``, by ``id`` of the thunk.
        around: function that adds timestamps to the action of a command, or None.
        """
        self.driver, self._arena, self._streams = driver, arena, streams
        self.communicator, self.collectives = communicator, collectives
        self.host_kernels, self.host = host_kernels, host
        self._ranges, self._recorded, self._numbers = ranges, around, numbers
        self.is_blocking = False
        self.uses_graphs = True
        self.pending_collectives: dict[str, PendingCollective] = {}
        self._pinned = np.zeros(0, np.uint8)
        self._workspaces: list[GpuBlock] = []
        self._workspace_bytes = 0
        self._constants: dict[int, GpuBlock] = {}

    def view(self, array_view: ArrayView) -> DeviceView:
        return self._arena.view(array_view)

    def stream(self, which: Stream) -> GpuStream:
        return self._streams[which]

    def mirror(
        self,
        operands: Sequence[DeviceView],
        results: Sequence[DeviceView],
        scratch: Sequence[DeviceView] = (),
    ) -> Mirror:
        mirror = Mirror(operands, results, scratch)
        if mirror.num_bytes > self._pinned.size:  # earlier mirrors retain theirs
            self._pinned = self.driver.pinned(max(mirror.num_bytes, 2 * self._pinned.size))
        mirror.lie_in(self._pinned)
        return mirror

    def shared_pinned(self, num_bytes: int) -> NDArray:
        memory: NDArray = self.communicator.allocate(num_bytes)
        if num_bytes:
            self.driver.pin(memory)
        return memory

    def workspace(self, num_bytes: int) -> int:
        if num_bytes > self._workspace_bytes or not self._workspaces:
            self._workspaces.append(
                self.driver.allocate(num_bytes)
            )  # earlier commands retain theirs
            self._workspace_bytes = num_bytes
        return self._workspaces[-1].address

    def number_word(self, value: int) -> DeviceView:
        if value not in self._constants:
            self._constants[value] = self.driver.allocate(4)
            self._arena.send(self._constants[value].address, np.array([value], np.uint32))
        return DeviceView(self._constants[value].address, StridedView(PrimitiveType.U32, (), ()))

    def wait(self, stream: GpuStream) -> None:
        if self.collectives is not None:
            self.collectives.wait(stream.ptr)
        stream.synchronize()

    def around(self, command: Command, action: Action) -> Action:
        if self._recorded is not None:
            action = self._recorded(command, action)
        if command.decides or isinstance(command, StartCommand):
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
        """Return an action that publishes thunk ``number`` as this rank's position to its peers, then runs ``action``.

        The position is needed for thunks at which ranks may wait for one another.
        """
        position = self.communicator.position

        def run() -> None:
            position[THUNK] = number
            action()

        return run
