"""DeviceProgram: the data that a device loads."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView, BufferAssignment
from runtime.program.thunks.feed import InfeedThunk, OutfeedThunk
from runtime.program.thunks.thunk import ThunkSequence, traverse
from spmd.literal import NDArray
from spmd.shape import ArrayShape

#: Number of last steps that are retained: a long run must not fill the memory with timestamps.
RETAINED_STEPS = 10


@dataclass(frozen=True)
class DeviceProgram:
    """Program that a device loads: plain data, the same for every device.

    ``host``: channel to the host, through which infeeds, outfeeds and callbacks find their data and functions.
    """

    name: str
    thunks: ThunkSequence
    assignment: BufferAssignment
    #: Data of the constant allocations, by allocation index.
    constants: dict[int, NDArray]
    parameters: tuple[ArrayShape, ...]
    outputs: tuple[ArrayView, ...]
    num_partitions: int
    replica_count: int
    host: HostChannel = field(default_factory=HostChannel, compare=False, repr=False)

    @property
    def num_devices(self) -> int:
        return self.num_partitions * self.replica_count

    @property
    def infeeds(self) -> tuple[InfeedThunk, ...]:
        return tuple(thunk for thunk in traverse(self.thunks) if isinstance(thunk, InfeedThunk))

    @property
    def outfeeds(self) -> tuple[OutfeedThunk, ...]:
        return tuple(thunk for thunk in traverse(self.thunks) if isinstance(thunk, OutfeedThunk))
