"""Partition and replica ids, copied from a constant in device memory."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import ArrayView
from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.planning import Planner, plans
from runtime.gpu.work import CopyWork
from runtime.program.thunks import PartitionIdThunk, ReplicaIdThunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class DeviceIdCommand(Command):
    """Copy of the u32 constant ``value`` to ``target``."""

    value: int
    target: ArrayView

    def bind(self, device: GpuProgram) -> Action:
        work = CopyWork(device.number_word(self.value), device.view(self.target))
        enqueue, stream = device.driver.load(work), device.stream(Stream.COMPUTE)
        return lambda: enqueue(stream)


@plans(PartitionIdThunk)
def plan_partition_id(thunk: PartitionIdThunk, planner: Planner) -> Iterator[Command]:
    """Yield the copy of this device's partition id, which is its rank modulo the number of partitions."""
    yield DeviceIdCommand(thunk, planner.rank % planner.num_partitions, thunk.result)


@plans(ReplicaIdThunk)
def plan_replica_id(thunk: ReplicaIdThunk, planner: Planner) -> Iterator[Command]:
    """Yield the copy of this device's replica id, which is its rank divided by the number of partitions."""
    yield DeviceIdCommand(thunk, planner.rank // planner.num_partitions, thunk.result)
