"""Buffer assignment: a Program's values to slices of allocations.

Parameters, outputs and constants have an allocation each. Everything else lies in outputs that are not written yet, and
for the rest in one temporary allocation of each colour, at offsets found by heap simulation over the values' lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.buffers.colocation import Colocation, Copy, Group, colocate
from runtime.buffers.heap import Arena, Interval, largest_first, lower_bound
from runtime.buffers.program import Program, Value, ValueView
from runtime.buffers.shared_results import Heap, heaps_of, intervals
from runtime.buffers.types import (
    AllocationKind,
    ArrayView,
    BufferAllocation,
    BufferAssignment,
    BufferSlice,
    Color,
    MemoryStats,
    NamedSlice,
)
from spmd.literal import NDArray


@dataclass(frozen=True)
class AssignedProgram:
    """A program whose values have places: what thunk emission reads."""

    program: Program
    assignment: BufferAssignment
    slices: dict[Value, BufferSlice]
    copies: tuple[Copy, ...]
    outputs: tuple[BufferSlice, ...]
    #: Data of the constant allocations, by allocation index.
    constants: dict[int, NDArray]

    def locate(self, view: ValueView) -> ArrayView:
        return ArrayView(self.slices[view.value], view.view)


def assign_buffers(program: Program) -> AssignedProgram:
    colocation = colocate(program)
    groups = colocation.all_groups()
    own = _own_allocations(groups)
    temporaries = [g for g in groups if g.kind is AllocationKind.TEMPORARY]
    lodged = _lodge_in_outputs(temporaries, own)
    heaps = heaps_of(program, [g for g in temporaries if id(g) not in lodged])
    allocations = _allocations(own, heaps)
    place = lodged | _places(own, heaps)
    slices = {
        value: BufferSlice(place[id(group)].allocation, place[id(group)].offset, value.size)
        for value, group in colocation.groups.items()
    }
    outputs = tuple(place[id(colocation.outputs[output.number])] for output in program.outputs)
    constants = {
        slices[value].allocation: value.constant
        for value in program.values
        if value.constant is not None
    }
    names = tuple(
        NamedSlice(v.name, str(v.shape), slices[v], v.start, v.last_read) for v in program.values
    )
    stats = _stats(program, colocation, groups, allocations)
    assignment = BufferAssignment(allocations, names, stats)
    return AssignedProgram(
        program, assignment, slices, tuple(colocation.copies), outputs, constants
    )


def _own_allocations(groups: list[Group]) -> list[Group]:
    """Groups with an allocation each, by kind and number."""
    order = list(AllocationKind)
    own = [g for g in groups if g.kind is not AllocationKind.TEMPORARY]
    return sorted(own, key=lambda g: (order.index(g.kind), g.number))


def _allocations(own: list[Group], heaps: list[Heap]) -> tuple[BufferAllocation, ...]:
    """The temporary ones last, the default colour's first of them."""
    first = len(own)
    return (
        *(
            BufferAllocation(i, g.kind, g.size, g.number, Color(g.memory_space))
            for i, g in enumerate(own)
        ),
        *(
            BufferAllocation(i, AllocationKind.TEMPORARY, heap.packing.size, i - first, heap.color)
            for i, heap in enumerate(heaps, first)
        ),
    )


def _places(own: list[Group], heaps: list[Heap]) -> dict[int, BufferSlice]:
    """The slice of each group, by its identity."""
    place = {id(g): BufferSlice(i, 0, g.size) for i, g in enumerate(own)}
    for index, heap in enumerate(heaps, len(own)):
        for group, offset in zip(heap.groups, heap.packing.offsets, strict=True):
            place[id(group)] = BufferSlice(index, offset, group.size)
    return place


def _lodge_in_outputs(shared: list[Group], own: list[Group]) -> dict[int, BufferSlice]:
    """Temporaries that die before an output is written may lie in its buffer meanwhile: large ones first."""
    outputs = [
        (i, g, Arena(len(shared), g.size))
        for i, g in enumerate(own)
        if g.kind is AllocationKind.OUTPUT
    ]
    outputs.sort(key=lambda entry: entry[1].size)
    place: dict[int, BufferSlice] = {}
    for k in largest_first(intervals(shared)):
        group = shared[k]
        for index, output, arena in outputs:
            if group.end >= output.start or not 0 < group.size <= output.size:
                continue
            if group.memory_space != output.memory_space:
                continue
            offset = arena.place(Interval(group.start, group.end, group.size))
            if offset is not None:
                place[id(group)] = BufferSlice(index, offset, group.size)
                break
    return place


def _stats(
    program: Program,
    colocation: Colocation,
    groups: list[Group],
    allocations: tuple[BufferAllocation, ...],
) -> MemoryStats:
    def total(kind: AllocationKind) -> int:
        return sum(a.size for a in allocations if a.kind is kind)

    moving = [g for g in groups if g.kind in (AllocationKind.TEMPORARY, AllocationKind.OUTPUT)]
    arguments = total(AllocationKind.PARAMETER)
    aliased = sum(
        o.view.view.byte_size
        for o in program.outputs
        if colocation.outputs[o.number].kind is AllocationKind.PARAMETER
    )
    own_outputs = total(AllocationKind.OUTPUT)
    return MemoryStats(
        arguments=arguments,
        outputs=own_outputs + aliased,
        aliased=aliased,
        temp=total(AllocationKind.TEMPORARY),
        peak_live=arguments + lower_bound(intervals(moving)),
        constants=total(AllocationKind.CONSTANT),
        shared=_sums((len(a.color.groups[0]), a.size) for a in allocations if a.color.groups),
        spaces=_sums((a.color.memory_space, a.size) for a in allocations),
    )


def _sums(sizes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Bytes by key, in order of keys."""
    result: dict[int, int] = {}
    for key, size in sizes:
        result[key] = result.get(key, 0) + size
    return tuple(sorted(result.items()))
