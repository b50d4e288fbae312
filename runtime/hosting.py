"""The devices of a node's ranks, run by one of them where ranks have to share cores.

The host (collectives/communicator/household.py) binds the program once more for each rank, to that rank's memory, which
it maps; from there on devices are to it what they are in loopback: coroutines on as many threads as there are cores.
Their collectives meet within the process. What each rank keeps to itself is its arrays: what goes in and what comes out
lies in its own memory.

    guest   inputs in place ─ comes to the gate ─ sleeps ···································· outputs
    host    inputs in place ─ comes to the gate ─ sleeps until all have ─ runs all ─ opens ─ outputs
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

from collectives.communicator.household import Household
from collectives.communicator.interface import BoundCollective
from collectives.communicator.loopback import LoopbackCommunicator, LoopbackWorld
from runtime.buffers.types import ArrayView
from runtime.crew import Crew
from runtime.device_memory import DeviceMemory
from runtime.executor import LoadedDevice
from runtime.host_feed import HostChannel
from runtime.kernel import KernelLibrary
from runtime.loopback import abort_lane, lanes_of
from runtime.shared_memory_engine import native_step_engine
from runtime.sharing.pieces import Cutting
from runtime.table import Table
from runtime.thunks.progress import ProgressPoints
from runtime.thunks.thunk import Thunk
from spmd.errors import RunError
from spmd.literal import NDArray


def hosted_steps(device: LoadedDevice) -> Callable[[], None] | None:
    """What takes ``device`` through a step that a host runs; None where each rank is to run its own.

    Every rank calls it when it has loaded the program. A program some of whose thunks need Python is not hosted:
    Python would run one at a time what ranks run side by side. Neither is one of which a timeline is taken.
    """
    household = device.communicator.household() if device.recorder is None else None
    if household is None:
        return None
    can_be_hosted = device.communicator.all_gather_bytes(b"native" if device.is_native else b"")
    if not all(can_be_hosted):
        return None
    return _Host(device, household).run if household.is_host else household.pass_gate


class _Host:
    """Runs all devices' steps."""

    def __init__(self, device: LoadedDevice, household: Household) -> None:
        self._household = household
        # No limit to its waits: guests see how the host gets on.
        self._world = LoopbackWorld(
            len(household.ranks),
            math.inf,
            native_step_engine(),
            [household.position_of(rank) for rank in household.ranks],
        )
        devices = [
            _HostedDevice(
                device,
                self._world.communicator(rank),
                device.memory.of_device(rank, partial(household.seen, rank)),
            )
            for rank in household.ranks
        ]
        lanes = lanes_of(self._world, [one.table for one in devices])
        self._crew = Crew(lanes, partial(abort_lane, self._world), idle_looks=0)

    def run(self) -> None:
        """CollectiveTimeoutError where guests do not come; RunError where a device fails, with its rank."""
        self._household.pass_gate()
        self._world.rejoin()
        try:
            self._crew.run()
        except RunError as error:
            rank = self._world.failed_rank
            raise RunError(f"[rank {rank}/{self._world.size}] {error}") from error
        self._household.gate.open()


class _HostedDevice:
    """One rank's device in the host's process (a LoadedProgram)."""

    recorder = None

    def __init__(
        self, own: LoadedDevice, communicator: LoopbackCommunicator, memory: DeviceMemory
    ) -> None:
        """``own``: the host's own device, which runs the same program."""
        self._own = own
        self.blocking = own.blocking
        self.progress = ProgressPoints()
        self.communicator = communicator
        self.position = communicator.position
        self.bound_collectives: dict[str, BoundCollective] = {}
        self._memory = memory
        communicator.enroll(own)
        self._segment = own.program.thunks.prepare(self)

    @property
    def kernels(self) -> KernelLibrary:
        return self._own.kernels

    @property
    def num_partitions(self) -> int:
        return self._own.num_partitions

    @property
    def host(self) -> HostChannel:
        return self._own.host

    def number_of(self, thunk: Thunk) -> int:
        return self._own.number_of(thunk)

    def array(self, place: ArrayView) -> NDArray:
        return self._memory.array(place)

    def seconds_of(self, thunk: Thunk) -> float:
        return self._own.seconds_of(thunk)

    def cutting_of(self, _: Thunk) -> Cutting:
        """Ranks that share cores have none over."""
        return Cutting()

    @cached_property
    def table(self) -> Table:
        """To be asked for when all devices are bound."""
        return Table(self._segment, self.position, self.communicator.rank)
