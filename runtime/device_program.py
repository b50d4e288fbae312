"""DeviceProgram: what a device loads."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.buffers.types import ArrayView, BufferAssignment
from runtime.thunks.sequence import ThunkSequence
from spmd.literal import NDArray
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class DeviceProgram:
    """What a device loads: plain data, the same for every device."""

    name: str
    thunks: ThunkSequence
    assignment: BufferAssignment
    #: Data of the constant allocations, by allocation index.
    constants: dict[int, NDArray]
    parameters: tuple[ArrayShape, ...]
    outputs: tuple[ArrayView, ...]
    num_partitions: int
    replica_count: int

    @property
    def num_devices(self) -> int:
        return self.num_partitions * self.replica_count
