"""Buffer assignment: maps the values of a Program to slices of allocations.

Each parameter and each constant has its own allocation. All other values, including outputs, are in one heap per
colour, at offsets that heap simulation over their live ranges finds (``heap/heap.py``). An output is live from its
first write to the end of the step. Before that its bytes may hold temporaries: an array of the previous step that still
occupies the bytes has been copied out by then (``runtime/arrays/slots.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runtime.buffers.colocation import Colocation, Copy, Group, GroupKind, colocate
from runtime.buffers.heap.arena import lower_bound
from runtime.buffers.heap.recorded_heaps import RecordedHeaps, digest_of_sizes
from runtime.buffers.own_parts import colocate_own_parts
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
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import HOST_MEMORY, ArrayShape


@dataclass(frozen=True)
class AssignedProgram:
    """Program with its buffer assignment, which thunk emission reads.

    slices: slice of each value. copies: copies between values that could not share memory. outputs: slice of each
    output leaf.
    """

    program: Program
    assignment: BufferAssignment
    slices: dict[Value, BufferSlice]
    copies: tuple[Copy, ...]
    outputs: tuple[BufferSlice, ...]
    #: Data of the constant allocations, by allocation index.
    constants: dict[int, NDArray]

    def locate(self, view: ValueView) -> ArrayView:
        """Return the array in memory that ``view`` refers to."""
        return ArrayView(self.slices[view.value], view.view)


def assign_buffers(program: Program, recorded: RecordedHeaps | None = None) -> AssignedProgram:
    """Assign buffers to the values of ``program``.

    recorded: heaps of an earlier assignment of this program, which are used instead of packing. Raises
    RecordedHeapsError if they do not fit the program.
    """
    colocation = colocate(program)
    colocate_own_parts(colocation)
    fixed = _fixed_allocations(colocation.all_groups())
    in_heaps = colocation.in_heaps()
    find_heaps = heaps_of if recorded is None else recorded.heaps_of
    heaps = find_heaps(program, in_heaps)
    allocations = _allocations(fixed, heaps)
    slice_of = _slices_of_groups(fixed, heaps)
    slices = {
        value: replace(slice_of[id(group)], size=value.size, parts=colocation.parts.get(value, ()))
        for value, group in colocation.groups.items()
    }
    outputs = tuple(slice_of[id(colocation.outputs[output.number])] for output in program.outputs)
    constants = {
        slices[value].allocation: value.constant
        for value in program.values
        if value.constant is not None
    }
    stats = _stats(program, colocation, in_heaps, allocations)
    names = _named_slices(colocation, slices, outputs)
    offsets = tuple(
        (slice_of[id(group)].allocation - len(fixed), slice_of[id(group)].offset)
        for group in in_heaps
    )
    assignment = BufferAssignment(allocations, names, stats, offsets, digest_of_sizes(in_heaps))
    return AssignedProgram(
        program, assignment, slices, tuple(colocation.copies), outputs, constants
    )


def _fixed_allocations(groups: list[Group]) -> list[Group]:
    """Return the groups that have their own allocation: parameters, then constants, by number."""
    kinds = [GroupKind.PARAMETER, GroupKind.CONSTANT]
    fixed = [group for group in groups if group.kind in kinds]
    return sorted(fixed, key=lambda group: (kinds.index(group.kind), group.number))


def _allocations(fixed: list[Group], heaps: list[Heap]) -> tuple[BufferAllocation, ...]:
    """Return all allocations. The heaps come last, and the heap of the default colour is the first of these."""
    first = len(fixed)
    return (
        *(
            BufferAllocation(
                i, AllocationKind(g.kind.value), g.size, g.number, Color(g.memory_space)
            )
            for i, g in enumerate(fixed)
        ),
        *(
            BufferAllocation(
                i,
                AllocationKind.HEAP,
                heap.packing.size,
                i - first,
                heap.color,
                heap.packing.algorithm,
            )
            for i, heap in enumerate(heaps, first)
        ),
    )


def _slices_of_groups(fixed: list[Group], heaps: list[Heap]) -> dict[int, BufferSlice]:
    """Return the slice of each group, by its identity."""
    slice_of = {id(g): BufferSlice(i, 0, g.size) for i, g in enumerate(fixed)}
    for index, heap in enumerate(heaps, len(fixed)):
        for group, offset in zip(heap.groups, heap.packing.offsets, strict=True):
            slice_of[id(group)] = BufferSlice(index, offset, group.size)
    return slice_of


def _named_slices(
    colocation: Colocation, slices: dict[Value, BufferSlice], outputs: Sequence[BufferSlice]
) -> tuple[NamedSlice, ...]:
    """Return the named slices of all values, then those of the outputs that a copy at the end of the program writes."""
    program = colocation.program
    own = [o for o in program.outputs if colocation.outputs[o.number].kind is GroupKind.OUTPUT]
    written = {
        o.view.value: o.number
        for o in own
        if colocation.groups[o.view.value] is colocation.outputs[o.number]
    }
    copied = [o for o in own if written.get(o.view.value) != o.number]
    return (
        *(
            NamedSlice(v.name, str(v.shape), slices[v], v.start, v.last_read, written.get(v))
            for v in program.values
        ),
        *(
            NamedSlice(
                f"{o.view.value.name}.output{o.number}",
                str(ArrayShape(o.view.view.element_type, o.view.view.dims)),
                outputs[o.number],
                program.end,
                program.end,
                o.number,
            )
            for o in copied
        ),
    )


def _stats(
    program: Program,
    colocation: Colocation,
    in_heaps: list[Group],
    allocations: tuple[BufferAllocation, ...],
) -> MemoryStats:
    """Return the memory figures of the assignment. ``in_heaps``: the groups that are in heaps."""

    def total(kind: AllocationKind) -> int:
        return sum(a.size for a in allocations if a.kind is kind and a.is_on_device)

    arguments = total(AllocationKind.PARAMETER)
    aliased = sum(
        o.view.view.byte_size
        for o in program.outputs
        if colocation.outputs[o.number].kind is GroupKind.PARAMETER
    )
    in_heaps = [group for group in in_heaps if group.memory_space != HOST_MEMORY]
    own_outputs = sum(group.size for group in in_heaps if group.kind is GroupKind.OUTPUT)
    return MemoryStats(
        arguments=arguments,
        outputs=own_outputs + aliased,
        aliased=aliased,
        temp=total(AllocationKind.HEAP) - own_outputs,
        peak_live=arguments + lower_bound(intervals(in_heaps)),
        constants=total(AllocationKind.CONSTANT),
        shared=_sums((len(a.color.groups[0]), a.size) for a in allocations if a.color.groups),
        spaces=_sums((a.color.memory_space, a.size) for a in allocations),
    )


def _sums(sizes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return (key, sum of bytes) for each key of the pairs ``sizes``, in the order of the keys."""
    result: dict[int, int] = {}
    for key, size in sizes:
        result[key] = result.get(key, 0) + size
    return tuple(sorted(result.items()))
