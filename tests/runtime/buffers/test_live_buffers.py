"""Tests of live bytes over a step: live ranges by hand, memory that is used again, and the peak."""

from __future__ import annotations

import numpy as np

from runtime.buffers.live_buffers import LiveBuffers
from runtime.buffers.types import (
    AllocationKind,
    BufferAllocation,
    BufferAssignment,
    BufferSlice,
    MemoryStats,
    NamedSlice,
)
from tests.runtime.programs import ALIASING, compiled


def value(name: str, allocation: int, offset: int, size: int, start: int, end: int) -> NamedSlice:
    return NamedSlice(name, f"u8[{size}]", BufferSlice(allocation, offset, size), start, end)


ASSIGNMENT = BufferAssignment(
    (
        BufferAllocation(0, AllocationKind.PARAMETER, 10),
        BufferAllocation(1, AllocationKind.HEAP, 300),
    ),
    (
        value("p", 0, 0, 10, 0, 2),
        value("a", 1, 0, 100, 1, 3),
        value("b", 1, 0, 100, 3, 4),  # in place of a
        value("c", 1, 0, 100, 6, 7),  # the place was free at 5
        value("d", 1, 100, 200, 4, 6),
        value("nothing", 1, 0, 0, 1, 7),
    ),
    MemoryStats(10, 0, 0, 300, 310),
)


def test_bytes_at_each_position() -> None:
    live = LiveBuffers(ASSIGNMENT)
    np.testing.assert_array_equal(live.bytes_at, [10, 110, 110, 110, 310, 210, 310, 110])
    assert live.peak == 4
    assert [v.name for v in live.largest_at(4)] == ["d", "b", "p"]
    assert [v.name for v in live.largest_at(6)] == ["d", "c", "p"]


def test_values_that_follow_one_another_in_a_place_are_held_as_one() -> None:
    held = [
        (h.start, h.end, [v.name for v in h.values]) for h in LiveBuffers(ASSIGNMENT).live_slices
    ]
    assert held == [(0, 7, ["p"]), (1, 4, ["a", "b"]), (6, 7, ["c"]), (4, 6, ["d"])]


def test_never_more_than_is_allocated() -> None:
    for text in ALIASING.values():
        assignment = compiled(text).program.assignment
        allocated = sum(allocation.size for allocation in assignment.allocations)
        assert 0 < LiveBuffers(assignment).bytes_at.max() <= allocated
