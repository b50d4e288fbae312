"""Buffer assignment as text, in the manner of XLA's -buffer-assignment.txt."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import AllocationKind, BufferAssignment


def dump_assignment(assignment: BufferAssignment) -> str:
    return "\n".join(_lines(assignment)) + "\n"


def _lines(assignment: BufferAssignment) -> Iterator[str]:
    stats = assignment.stats
    yield "BufferAssignment:"
    by_allocation: dict[int, list[str]] = {}
    for value in sorted(
        assignment.values, key=lambda v: (v.slice.allocation, v.slice.offset, v.start)
    ):
        by_allocation.setdefault(value.slice.allocation, []).append(
            f" value: {value.name} (size={value.slice.size},offset={value.slice.offset},"
            f"live={value.start}..{value.end}): {value.shape}"
        )
    for allocation in assignment.allocations:
        number = "" if allocation.kind is AllocationKind.TEMPORARY else f" {allocation.number}"
        yield f"allocation {allocation.index}: size {allocation.size}, {allocation.kind.value}{number}:"
        yield from by_allocation.get(allocation.index, ())
    yield ""
    yield "Total bytes used:"
    yield f" arguments {stats.arguments}, outputs {stats.outputs} (aliased {stats.aliased}), temp {stats.temp}"
    yield f" constants {stats.constants}, peak live {stats.peak_live}"
