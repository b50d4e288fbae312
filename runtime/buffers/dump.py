"""Buffer assignment as text, similar to XLA's -buffer-assignment.txt."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from runtime.buffers.heap.arena import Interval, load
from runtime.buffers.types import AllocationKind, BufferAllocation, BufferAssignment, NamedSlice

#: Largest number of values that are listed at the peak.
_MOST_AT_PEAK = 40


def dump_assignment(assignment: BufferAssignment) -> str:
    """Return the text of ``assignment``: allocations, totals, live ranges, and the values at the peak."""
    lines = [*_allocations(assignment), *_totals(assignment), *_live_ranges(assignment)]
    return "\n".join(lines) + "\n"


def _allocations(assignment: BufferAssignment) -> Iterator[str]:
    """Yield the lines of the allocations, each with its values by offset. Values are numbered by definition."""
    yield "BufferAssignment:"
    by_allocation: dict[int, list[tuple[int, NamedSlice]]] = {}
    for number, value in enumerate(assignment.values):
        by_allocation.setdefault(value.slice.allocation, []).append((number, value))
    for allocation in assignment.allocations:
        inside = by_allocation.get(allocation.index, [])
        purpose = f"{_color(allocation)}{_purpose(allocation, inside)}"
        yield f"allocation {allocation.index}: size {allocation.size}, {purpose}:"
        for number, value in sorted(inside, key=lambda one: (one[1].slice.offset, one[1].start)):
            extent = f"(size={value.slice.size},offset={value.slice.offset})"
            output = "" if value.output is None else f", output {value.output}"
            parts = len(value.slice.parts[0]) if value.slice.parts else 0
            own = f", a device's one of {parts} from there on" if parts else ""
            yield f" value: <{number} {value.name} @0> {extent}: {value.shape}{output}{own}"
    yield ""


def _color(allocation: BufferAllocation) -> str:
    """Return the text of an allocation's colour; "" for the default colour.

    Replica groups that share the allocation are an addition to XLA's format.
    """
    color = allocation.color
    space = f"color {color.memory_space}, " if color.memory_space else ""
    groups = ",".join(f"{{{','.join(map(str, group))}}}" for group in color.groups)
    return f"{space}shared by {{{groups}}}, " if groups else space


def _purpose(allocation: BufferAllocation, inside: list[tuple[int, NamedSlice]]) -> str:
    """Return the text of an allocation's purpose; for a heap, whether it holds outputs, and the placement algorithm.

    inside: the values in the allocation.
    """
    if allocation.kind is not AllocationKind.HEAP:
        return f"{allocation.kind.value} {allocation.number}"
    live_out = any(value.output is not None for _, value in inside)
    placed = f", placed {allocation.placement}" if inside else ""
    return f"preallocated-temp{', maybe-live-out' if live_out else ''}{placed}"


def _totals(assignment: BufferAssignment) -> Iterator[str]:
    """Yield the lines of the memory figures."""
    stats = assignment.stats
    yield f"Total bytes used: {assignment.device_bytes}"
    yield f" arguments {stats.arguments}, outputs {stats.outputs} (aliased {stats.aliased}), temp {stats.temp}"
    yield f" constants {stats.constants}, peak live {stats.peak_live}"
    yield from (f" of temp, {size} held once by {n} devices" for n, size in stats.shared)
    if len(stats.spaces) > 1:
        yield from (f" memory space {space}: {size} bytes" for space, size in stats.spaces)
    yield ""


def _live_ranges(assignment: BufferAssignment) -> Iterator[str]:
    """Yield the lines of the live ranges, in schedule positions, and of the values that are live at the peak."""
    values = sorted(assignment.values, key=attrgetter("start", "end"))
    yield f"HloLiveRange (max {max((value.end for value in values), default=0)}):"
    yield "  BufferLiveRange:"
    yield from (f"    {value.name}:{value.start}-{value.end}" for value in values)
    # Values in the host's memory take no device memory.
    values = [v for v in values if assignment.allocations[v.slice.allocation].is_on_device]
    spans = [Interval(value.start, value.end, value.slice.size) for value in values]
    peak = int(load(spans).argmax())  # values that share a slice are all counted
    alive = sorted(
        (value for value in values if value.start <= peak <= value.end),
        key=lambda value: (-value.slice.size, value.start),
    )
    yield f"  Live ranges at {peak} (peak):"
    yield from (f"    {value.name}: {value.slice.size} bytes" for value in alive[:_MOST_AT_PEAK])
    if len(alive) > _MOST_AT_PEAK:
        yield f"    ... and {len(alive) - _MOST_AT_PEAK} more"
