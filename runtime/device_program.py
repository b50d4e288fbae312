"""DeviceProgram: the data that a device loads, the module it was made of, and whether it fits the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView, BufferAssignment
from runtime.program.thunks import InfeedThunk, OutfeedThunk, ThunkSequence, traverse
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from spmd.hlo import HloModule

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


class ScheduledModule:
    """Scheduled module of a program, read at its first use. ``aliases``: output leaf -> input leaf, if known."""

    def __init__(
        self, read: Callable[[], HloModule], aliases: dict[int, int] | None = None
    ) -> None:
        """``read``: is called once, at the first use of the module, and may raise SpmdError."""
        self._read = read
        self._aliases = aliases

    @cached_property
    def module(self) -> HloModule:
        return self._read()

    @cached_property
    def aliases(self) -> dict[int, int]:
        """Output leaf number -> input leaf number; donors count with the results that take their places."""
        if self._aliases is not None:
            return self._aliases
        # A saved program states its aliases, and imports no graph.
        from spmd.analysis.aliased_outputs import aliased_outputs

        return aliased_outputs(self.module)


# ---- memory limit


#: Number of buffers that the error message names.
MOST_NAMED = 5


class MemoryLimitError(RunError):
    """Program that does not fit the memory it may use."""


def require_memory(program: DeviceProgram, limit: int | None) -> None:
    """Raise MemoryLimitError if a device needs more than ``limit`` bytes.

    The message names the largest buffers that are live at the peak, and the limit that suffices.
    """
    assignment = program.assignment
    needed = assignment.device_bytes
    if limit is None or needed <= limit:
        return
    from runtime.buffers.live_buffers import LiveBuffers

    live = LiveBuffers(assignment)
    largest = live.largest_at(live.peak)[:MOST_NAMED]
    buffers = "".join(f"\n  {one.name} {one.shape}: {one.slice.size:,} bytes" for one in largest)
    raise MemoryLimitError(
        f"{program.name} needs {needed:,} bytes on each device, but the limit is {limit:,}: --memory-limit {needed} is "
        f"enough; the largest buffers at the peak of {int(live.bytes_at.max()):,} live bytes are{buffers}"
    )
