"""Devices of a program in one process, divided among one thread for each core at most."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from collectives.communicator.group import Group
from collectives.communicator.loopback.communicator import LoopbackWorld
from runtime.arrays.slots import DeviceArray
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.libraries.blas import BlasThreads, reserve_work_buffers
from runtime.cpu.step.device_table import State, Table
from runtime.cpu.step.segment import PythonWait, SegmentRow
from runtime.cpu.step.thread_team import GrowingTeam, ThreadTeam
from runtime.cpu.step.worker import Worker
from runtime.device_program import DeviceProgram
from runtime.program.kernel import KernelLibrary

_MAX_POLLS = 10_000
"""Most rounds of polls of a worker's devices, some 350 us, before it gives up its core; each worker has a core.

This is more than twice the time of a return to Python. With fewer, a worker would return while it waits for one that
has returned, which would then wait for the first: all short waits would become such returns.
"""

_MOST_MEMORY = 1 << 20
"""Most bytes of all devices for which threads are added only after the first steps."""


class LoopbackDevices:
    """Devices of a loaded program, which runs any number of times. They are unusable after a failed run."""

    def __init__(
        self,
        program: DeviceProgram,
        kernels: KernelLibrary,
        timeout_seconds: float = 300.0,
        *,
        record: bool = False,
        reference_every: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Load the program. ``record``, ``reference_every``: see ``LoadedDevice``.

        meanwhile: called while other threads make machine code.
        """
        self.world = LoopbackWorld(program.num_devices, timeout_seconds, native_collective_engine())
        self.devices = [
            LoadedDevice(
                program,
                self.world.communicator(rank),
                kernels,
                record=record,
                reference_every=reference_every,
            )
            for rank in range(program.num_devices)
        ]
        if meanwhile is not None:
            meanwhile()
        self._tables = [device.table for device in self.devices]
        threads = min(len(self.devices), len(os.sched_getaffinity(0)))
        self._team = GrowingTeam(self._team_of, threads, small=self._is_small)
        self._one_blas_thread = BlasThreads(1)
        reserve_work_buffers(threads * self.world.cores)

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run a step of all devices on the inputs of each. The first error of a device is raised unchanged."""
        self.world.rejoin()
        for device, arrays in zip(self.devices, per_device, strict=True):
            device.begin(arrays)
        with self._one_blas_thread:
            self._team.run()
        for device in self.devices:
            device.end()

    def _team_of(self, threads: int) -> ThreadTeam:
        workers = workers_of(self.world, self._tables, threads)
        return ThreadTeam(workers, partial(abort_worker, self.world), self.world.cores)

    @property
    def _is_small(self) -> bool:
        """Return whether a step may be short: it needs no Python, threads share no kernel, and memory is small."""
        device = self.devices[0]
        memory = sum(one.size for one in device.program.assignment.allocations)
        is_little = memory * len(self.devices) <= _MOST_MEMORY
        return is_little and device.is_native and not device.table.has_shares


def workers_of(world: LoopbackWorld, tables: Sequence[Table], count: int) -> list[Worker]:
    """Divide devices among ``count`` workers, adjacent ones on one: they are mostly in one group."""
    ends = [len(tables) * i // count for i in range(count + 1)]
    return [
        Worker(tables[first:end], _WaitCheck(world, tables), rounds=_MAX_POLLS)
        for first, end in itertools.pairwise(ends)
    ]


def abort_worker(world: LoopbackWorld, worker: Worker, error: BaseException) -> None:
    """Abort the world with ``error`` of the device that ``worker`` is running."""
    world.abort(worker.current.rank, error)


class _Awaited(Protocol):
    """Interface of bound collectives, native or in Python, to one that waits for them."""

    name: str

    @property
    def group(self) -> Group: ...

    @property
    def run(self) -> object: ...

    def missing(self) -> list[int]: ...


class _WaitCheck:
    """Check of waits for devices of other workers, which raises if a wait cannot end."""

    def __init__(self, world: LoopbackWorld, tables: Sequence[Table]) -> None:
        """Create a check for a worker. ``tables``: of all devices."""
        self._world = world
        self._tables = tables
        #: Collective that each device waits for: name, run and time of the first check.
        self._since: dict[int, tuple[str, object, float]] = {}

    def __call__(self, rank: int, row: SegmentRow) -> bool:
        """Check the wait of a device. Raises PeerFailedError or CollectiveTimeoutError."""
        self._world.raise_if_failed()
        awaited, now = _awaited(row), time.monotonic()
        name, run, since = self._since.get(rank, ("", None, now))
        if (name, run) != (awaited.name, awaited.run):
            since = now
        self._since[rank] = awaited.name, awaited.run, since
        for peer, table in enumerate(self._tables):  # before missing devices are determined
            if table.state is State.FINISHED:
                self._world.leave(peer)
        seconds_left = since + self._world.timeout_seconds - now
        missing = awaited.missing()
        self._world.require_hope(rank, awaited.name, awaited.group, missing, seconds_left)
        return False


def _awaited(row: SegmentRow) -> _Awaited:
    target = row.target
    found: _Awaited = target.bound if isinstance(target, PythonWait) else target  # type: ignore[assignment]
    return found
