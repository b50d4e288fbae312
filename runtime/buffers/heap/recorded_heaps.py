"""Heap packings recorded in a saved program; they are checked, then used again instead of packing.

Packing is the longest part of assigning buffers. Its result is an offset for each group of values. One traversal of
time checks that no two groups that are live at the same time share a byte. Whether groups of devices may share a heap
is derived from the program again (``shared_results.py``).

Sizes in heaps differ between processors because kernels need different scratch. In that case heaps are packed anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from hashlib import sha256
from heapq import heappop, heappush

from runtime.buffers.colocation import Group
from runtime.buffers.heap.arena import Interval
from runtime.buffers.heap.heap import Packing
from runtime.buffers.program import Program
from runtime.buffers.shared_results import Heap, heaps_of, intervals, shareable
from runtime.buffers.types import AllocationKind, BufferAssignment, Color, alignment_of
from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass


class RecordedHeapsError(SpmdError):
    """Offsets do not fit the program that they come with."""


@dataclass(frozen=True, slots=True)
class RecordedHeap:
    """Recorded heap. ``size`` in bytes; ``algorithm``: name of the packing algorithm."""

    color: Color
    size: int
    algorithm: str


@dataclass(frozen=True, slots=True)
class RecordedHeaps:
    """Recorded packings. ``offsets``: heap number and offset of each group that lies in a heap, in order.

    ``sizes``: ``digest_of_sizes`` of the groups for which the offsets were found.
    """

    heaps: tuple[RecordedHeap, ...]
    offsets: tuple[tuple[int, int], ...]
    sizes: str

    @staticmethod
    def of(assignment: BufferAssignment) -> RecordedHeaps:
        heaps = assignment.of_kind(AllocationKind.HEAP)
        return RecordedHeaps(
            tuple(RecordedHeap(heap.color, heap.size, heap.placement) for heap in heaps),
            assignment.offsets,
            assignment.sizes,
        )

    def heaps_of(self, program: Program, groups: Sequence[Group]) -> list[Heap]:
        """Return the recorded heaps; if the sizes of groups differ, those of ``shared_results.heaps_of``.

        Raises RecordedHeapsError if the recorded heaps are not valid for the program.
        """
        if digest_of_sizes(groups) != self.sizes:
            return heaps_of(program, groups)
        if len(self.offsets) != len(groups):
            _refuse(f"{len(self.offsets)} places for {len(groups)} groups of values")
        colors = [heap.color for heap in self.heaps]
        spaces = {0, *(group.memory_space for group in groups)}
        if len(set(colors)) != len(colors) or {Color(space) for space in spaces} != {
            color for color in colors if not color.groups
        }:
            _refuse("other heaps than its memory spaces have")
        inside: list[tuple[list[Group], list[int]]] = [([], []) for _ in self.heaps]
        for (number, offset), group in zip(self.offsets, groups, strict=True):
            if not 0 <= number < len(inside):
                _refuse(f"no heap {number}")
            inside[number][0].append(group)
            inside[number][1].append(offset)
        may_share = shareable(program, groups) if any(color.groups for color in colors) else {}
        return [
            _checked(heap, own, offsets, may_share)
            for heap, (own, offsets) in zip(self.heaps, inside, strict=True)
        ]


def digest_of_sizes(groups: Sequence[Group]) -> str:
    """Return a digest of the sizes of ``groups``, in order."""
    return sha256(",".join(str(group.size) for group in groups).encode()).hexdigest()


def _checked(
    heap: RecordedHeap,
    groups: Sequence[Group],
    offsets: Sequence[int],
    may_share: dict[int, tuple[tuple[int, ...], ...]],
) -> Heap:
    color = heap.color
    for group, offset in zip(groups, offsets, strict=True):
        if group.memory_space != color.memory_space:
            _refuse("a value in another memory space")
        if color.groups and may_share.get(id(group)) != color.groups:
            _refuse("a value in memory that other devices hold, too")
        if offset < 0 or offset % alignment_of(group.size):
            _refuse(f"offset {offset} for {group.size} bytes")
    live_ranges = intervals(groups)
    highest = max((o + one.size for o, one in zip(offsets, live_ranges, strict=True)), default=0)
    if highest != heap.size:
        _refuse(f"a heap of {heap.size} bytes, of which {highest} are used")
    if share_bytes(live_ranges, offsets):
        _refuse("two values in the same bytes at the same time")
    return Heap(color, tuple(groups), Packing(tuple(offsets), heap.size, heap.algorithm))


def share_bytes(live_ranges: Sequence[Interval], offsets: Sequence[int]) -> bool:
    """Return whether two of the intervals, which begin at ``offsets``, meet in time and in bytes."""
    placed = sorted(
        (
            (one.start, offset, one)
            for offset, one in zip(offsets, live_ranges, strict=True)
            if one.size
        ),
        key=lambda found: found[:2],  # intervals have no order among themselves
    )
    live: list[tuple[int, int]] = []  # (first byte, end), disjoint, in order
    ends: list[tuple[int, tuple[int, int]]] = []
    for start, offset, one in placed:
        while ends and ends[0][0] < start:
            gone = heappop(ends)[1]
            del live[bisect_left(live, gone)]
        own = (offset, offset + one.size)
        after = bisect_left(live, own)
        if (after < len(live) and live[after][0] < own[1]) or (
            after and live[after - 1][1] > offset
        ):
            return True
        insort(live, own)
        heappush(ends, (one.end, own))
    return False


def _refuse(found: str) -> None:
    raise RecordedHeapsError(f"the places of values do not fit the module: {found}")
