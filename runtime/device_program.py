"""DeviceProgram: what a device loads."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.buffers.types import ArrayView, BufferAssignment
from runtime.host_feed import FeedChannel
from runtime.thunks.feed import InfeedThunk, OutfeedThunk
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import walk
from spmd.literal import NDArray
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class DeviceProgram:
    """What a device loads: plain data, the same for every device.

    ``feeds``: where infeeds and outfeeds find what a run feeds and takes.
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
    feeds: FeedChannel = field(default_factory=FeedChannel, compare=False, repr=False)

    @property
    def num_devices(self) -> int:
        return self.num_partitions * self.replica_count

    @property
    def infeeds(self) -> tuple[InfeedThunk, ...]:
        return tuple(thunk for thunk in walk(self.thunks) if isinstance(thunk, InfeedThunk))

    @property
    def outfeeds(self) -> tuple[OutfeedThunk, ...]:
        return tuple(thunk for thunk in walk(self.thunks) if isinstance(thunk, OutfeedThunk))
