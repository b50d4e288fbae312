"""Contents of a device's memory at each position of the schedule, and the peak. Host memory is left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from runtime.buffers.types import AllocationKind, BufferAssignment, BufferSlice, NamedSlice
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LiveSlice:
    """Slice that is in use from position ``start`` to ``end``, both included. ``values``: its values by start."""

    slice: BufferSlice
    start: int
    end: int
    values: tuple[NamedSlice, ...]

    def at(self, position: int) -> NamedSlice:
        """Return the value in the slice at ``position``, or the last one before it."""
        return next((v for v in reversed(self.values) if v.start <= position), self.values[0])


class LiveBuffers:
    """Live buffers of an assignment.

    Parameters and constants are always live, other values from their write to their last read.
    """

    def __init__(self, assignment: BufferAssignment) -> None:
        self.assignment = assignment
        self.end = max((value.end for value in assignment.values), default=0)
        self._always = frozenset(
            allocation.index
            for allocation in assignment.allocations
            if allocation.kind in (AllocationKind.PARAMETER, AllocationKind.CONSTANT)
        )

    @cached_property
    def live_slices(self) -> tuple[LiveSlice, ...]:
        """Return the slices in use. Values of a slice whose live ranges overlap are joined to one LiveSlice."""
        by_slice: dict[BufferSlice, list[NamedSlice]] = {}
        for value in self.assignment.values:
            if (
                value.slice.size
                and self.assignment.allocations[value.slice.allocation].is_on_device
            ):
                by_slice.setdefault(value.slice, []).append(value)
        found = []
        for slice_, values in by_slice.items():
            values.sort(key=lambda value: (value.start, value.end))
            if slice_.allocation in self._always:
                found.append(LiveSlice(slice_, 0, self.end, tuple(values)))
            else:
                found.extend(_joined(slice_, values))
        return tuple(found)

    @cached_property
    def bytes_at(self) -> np.ndarray:
        """Return the live bytes at each position, int64[positions]."""
        change = np.zeros(self.end + 2, np.int64)
        for one in self.live_slices:
            change[one.start] += one.slice.size
            change[one.end + 1] -= one.slice.size
        return np.cumsum(change)[:-1]

    @property
    def peak(self) -> int:
        """Return the first position at which most bytes are live."""
        return int(self.bytes_at.argmax())

    def largest_at(self, position: int) -> list[NamedSlice]:
        """Return the value of each slice that is in use at ``position``, largest first."""
        found = [one.at(position) for one in self.live_slices if one.start <= position <= one.end]
        return sorted(found, key=lambda value: -value.slice.size)


def _joined(slice_: BufferSlice, values: Sequence[NamedSlice]) -> list[LiveSlice]:
    """Return a LiveSlice for each run of ``values``, which are sorted by start, whose live ranges overlap."""
    found: list[LiveSlice] = []
    run: list[NamedSlice] = []
    end = -1
    for value in values:
        if run and value.start > end:
            found.append(LiveSlice(slice_, run[0].start, end, tuple(run)))
            run = []
        run.append(value)
        end = max(end, value.end) if len(run) > 1 else value.end
    found.append(LiveSlice(slice_, run[0].start, end, tuple(run)))
    return found
