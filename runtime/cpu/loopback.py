"""All devices of a program in one process, run by at most one worker thread per core."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from collectives.communicator.loopback.communicator import LoopbackWorld
from collectives.communicator.loopback.rendezvous import RendezvousCollective
from collectives.communicator.native_collective import NativeCollective
from runtime.arrays.slots import DeviceArray
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.libraries.blas import BlasThreads, reserve_work_buffers
from runtime.cpu.step.device_table import State, Table
from runtime.cpu.step.segment import PythonWait, SegmentRow
from runtime.cpu.step.thread_team import GrowingTeam, ThreadTeam
from runtime.cpu.step.worker import Worker
from runtime.device_program import DeviceProgram

_MAX_POLLS = 10_000
"""Most rounds of polls without progress, some 350 us, before a worker yields its core. Each worker has its own core.

This is more than twice the time of a return to Python. With fewer rounds, a worker would return to Python while it
waits for another worker that has returned, and the other would then do the same: all short waits would become returns.
"""

_MOST_MEMORY = 1 << 20
"""Largest memory of all devices, in bytes, for which a program starts with one thread and adds threads later."""


class LoopbackDevices:
    """All devices of a loaded program in one process. They can run any number of steps, until a step fails."""

    def __init__(
        self,
        program: DeviceProgram,
        timeout_seconds: float = 300.0,
        *,
        record: bool = False,
        reference_every: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Load the program on all of its devices. ``record`` and ``reference_every`` are those of ``LoadedDevice``.

        timeout_seconds: longest wait for the members of a collective. meanwhile: function to call while other threads
        compile machine code.
        """
        self.world = LoopbackWorld(program.num_devices, timeout_seconds, native_collective_engine())
        self.devices = [
            LoadedDevice(
                program,
                self.world.communicator(rank),
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
        """Run a step on all devices. ``per_device``: for each device, one array per parameter leaf.

        If devices fail, it raises the error of ``ThreadTeam.run``, unchanged.
        """
        self.world.rejoin()
        for device, arrays in zip(self.devices, per_device, strict=True):
            device.begin(arrays)
        with self._one_blas_thread:
            self._team.run()
        for device in self.devices:
            device.end()

    def _team_of(self, threads: int) -> ThreadTeam:
        """Return a team of ``threads`` workers, each of which runs consecutive devices.

        These are mostly members of the same groups, so that few collectives involve several workers.
        """
        ends = [len(self._tables) * i // threads for i in range(threads + 1)]
        workers = [
            Worker(self._tables[first:end], _WaitCheck(self.world, self._tables), rounds=_MAX_POLLS)
            for first, end in itertools.pairwise(ends)
        ]
        return ThreadTeam(workers, partial(abort_worker, self.world), self.world.cores)

    @property
    def _is_small(self) -> bool:
        """Return whether a step may be short: it needs no Python, no kernel is shared, and memory is small."""
        device = self.devices[0]
        memory = sum(one.size for one in device.program.assignment.allocations)
        is_little = memory * len(self.devices) <= _MOST_MEMORY
        return is_little and device.is_native and not device.table.has_shares


def abort_worker(world: LoopbackWorld, worker: Worker, error: BaseException) -> None:
    """Abort the world with ``error``, as the failure of the device that ``worker`` is running."""
    world.abort(worker.current.rank, error)


class _WaitCheck:
    """WaitHandler of a worker. It raises if a wait for a device of another worker cannot end."""

    def __init__(self, world: LoopbackWorld, tables: Sequence[Table]) -> None:
        """Create the handler of one worker. ``tables``: tables of all devices of the process, by rank."""
        self._world = world
        self._tables = tables
        #: Collective for which each device waits: its name, its run, and the time of the first check.
        self._since: dict[int, tuple[str, object, float]] = {}

    def __call__(self, rank: int, row: SegmentRow) -> bool:
        """Check the wait of device ``rank`` at ``row``, and return False.

        Raises PeerFailedError if a device has failed. Raises CollectiveTimeoutError if a device that the collective
        lacks has ended its program, or if the device has waited longer than the timeout.
        """
        self._world.raise_if_failed()
        awaited, now = _awaited(row), time.monotonic()
        name, run, since = self._since.get(rank, ("", None, now))
        if (name, run) != (awaited.name, awaited.run):
            since = now
        self._since[rank] = awaited.name, awaited.run, since
        # Finished devices are recorded before ``missing`` is called: a device may arrive and finish between the two.
        for peer, table in enumerate(self._tables):
            if table.state is State.FINISHED:
                self._world.leave(peer)
        seconds_left = since + self._world.timeout_seconds - now
        missing = awaited.missing()
        self._world.require_hope(rank, awaited.name, awaited.group, missing, seconds_left)
        return False


def _awaited(row: SegmentRow) -> NativeCollective | RendezvousCollective:
    target = row.target
    return target.bound if isinstance(target, PythonWait) else target  # type: ignore[return-value]
