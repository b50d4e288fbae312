"""Array access of GPU threads: base address, strides, and how many neighbours one instruction reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.codegen.elements.builder import Instructions, Int
from runtime.codegen.ir.dynamic_starts import (
    StartsStage,
    StartsVariant,
    computed_starts,
    moved_by,
)
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.codegen.ir.values import typed
from runtime.gpu.codegen.launch import ALIGNMENT, Held, PtxArgument
from runtime.gpu.codegen.thread_writer import PtxWriter
from runtime.program.index_maps import Shift
from runtime.program.records import loop
from runtime.program.records.loop import LoopLeaf, Numbers
from runtime.program.strides import StridedView
from spmd.shape import PrimitiveType

#: Instructions of a GPU.
INSTRUCTIONS = Instructions(fused=True, rounds=True)
#: Limit from which indices and byte offsets no longer fit 32 bits.
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class GpuWalk:
    """Access to an array: ``start`` and ``strides`` in bytes relative to the argument; without one, s64 numbers."""

    argument: PtxArgument | None
    kind: PrimitiveType
    start: int
    strides: tuple[int, ...]
    shifts: tuple[Shift, ...] = ()

    @property
    def counts(self) -> bool:
        return self.argument is None

    @property
    def item(self) -> int:
        return 1 if self.counts else self.kind.byte_size

    @property
    def stored(self) -> str:
        return stored_type(self.kind)


def array_walk(held: Held, number: int, array: StridedView) -> GpuWalk:
    """Return the access to an array as it is."""
    argument = PtxArgument(held, number)
    return GpuWalk(argument, array.element_type, array.offset, array.strides)


def seen_walk(held: Held, number: int, array: StridedView, view: StridedView) -> GpuWalk:
    """Return the access to an array seen as ``view`` from its first element."""
    argument, start = PtxArgument(held, number), array.offset + view.offset
    return GpuWalk(argument, view.element_type, start, view.strides)


def leaf_access(leaf: LoopLeaf, operands: Sequence[StridedView]) -> GpuWalk:
    if isinstance(leaf, Numbers):
        return GpuWalk(None, PrimitiveType.S64, leaf.view.offset, leaf.view.strides, leaf.shifts)
    argument, start = PtxArgument(Held.OPERAND, leaf.operand), operands[leaf.operand].offset
    view = leaf.view
    return GpuWalk(argument, view.element_type, start + view.offset, view.strides, leaf.shifts)


def index_type(
    sizes: Sequence[int], walks: Sequence[GpuWalk], strides: Sequence[Sequence[int]]
) -> str:
    """Return i32 if all indices, including a grid's beyond the last one, and all byte offsets fit; else i64."""
    ways = [
        sum(abs(stride) * size for stride, size in zip(own, sizes, strict=True))
        for own, walk in zip(strides, walks, strict=True)
    ]
    return "i32" if 2 * math.prod(sizes) < _MOST and max(ways, default=0) < _MOST else "i64"


# ---- where arrays begin
def begun(writer: PtxWriter, walk: GpuWalk) -> str:
    """Emit the address of the first element, or the first number."""
    if walk.argument is None:
        return str(walk.start)
    pointer = writer.pointer(walk.argument)
    return writer.value(f"getelementptr i8, ptr {pointer}, i64 {walk.start}")


def starts_functions(stages: Sequence[loop.StartsStage]) -> list[str]:
    return [
        part
        for number, stage in enumerate(stages)
        for part in program_ir(stage.program, f"starts{number}", INSTRUCTIONS)
    ]


def computed(
    writer: PtxWriter, stages: Sequence[loop.StartsStage], operands: Sequence[StridedView]
) -> list[str]:
    """Emit the results of the last stage; every thread computes them for itself."""
    forms = []
    for stage in stages:
        walks = [leaf_access(leaf, operands) for leaf in stage.leaves]
        writer.constants += [begun(writer, walk) for walk in walks]
        writer.constants += _shift_words(walks)
        counts = tuple(walk.counts for walk in walks)
        forms.append(StartsStage(stage.program, counts, _shift_numbers(walks)))
    return [start.name for start in computed_starts(writer, StartsVariant(tuple(forms), ()))]


def moved(writer: PtxWriter, walks: Sequence[GpuWalk], starts: Sequence[str]) -> list[str]:
    """Emit the base address of each array, moved by its shifts."""
    first = {
        i: typed(writer, "i64" if walk.counts else "ptr", begun(writer, walk))
        for i, walk in enumerate(walks)
    }
    writer.constants += _shift_words(walks)
    numbers = [Int(writer, "i64", start) for start in starts]
    places = moved_by(writer, _shift_numbers(walks), numbers, first)
    return [places[i].name for i in range(len(walks))]


def _shift_words(walks: Sequence[GpuWalk]) -> list[str]:
    return [
        str(word) for walk in walks for shift in walk.shifts for word in (shift.limit, shift.stride)
    ]


def _shift_numbers(walks: Sequence[GpuWalk]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shift.start for shift in walk.shifts) for walk in walks)


# ---- elements side by side
def piece(walk: GpuWalk, strides: Sequence[int], count: int) -> int:
    """Return how many of ``count`` neighbours along the last of ``strides`` one instruction can move.

    Groups of ``count`` begin at multiples of it. 1: they are not neighbours in memory.
    """
    if walk.counts or not strides or strides[-1] != walk.item:
        return 1
    *outer, _ = strides
    places = (walk.start, count * walk.item, *outer, *(shift.stride for shift in walk.shifts))
    return max(1, math.gcd(ALIGNMENT, *places) // walk.item)


def load(
    writer: PtxWriter, walk: GpuWalk, place: str, stride: int, count: int, piece: int
) -> list[str]:
    """Emit loads of ``count`` elements from ``place`` on, ``stride`` apart; numbers are computed, not read."""
    if walk.counts:
        return [
            place if j * stride == 0 else writer.value(f"add i64 {place}, {j * stride}")
            for j in range(count)
        ]
    t = walk.stored
    if stride == 0:
        return [writer.value(f"load {t}, ptr {place}, align {walk.item}")] * count
    found = []
    for first in range(0, count, piece):
        at = moved_place(writer, place, first * stride)
        align = piece * walk.item
        if piece == 1:
            found.append(writer.value(f"load {t}, ptr {at}, align {align}"))
            continue
        vector = writer.value(f"load <{piece} x {t}>, ptr {at}, align {align}")
        found += [
            writer.value(f"extractelement <{piece} x {t}> {vector}, i32 {j}") for j in range(piece)
        ]
    return found


def store(
    writer: PtxWriter, walk: GpuWalk, place: str, stride: int, elements: Sequence[str], piece: int
) -> None:
    """Emit stores of ``elements`` from ``place`` on, ``stride`` apart."""
    t = walk.stored
    for first in range(0, len(elements), piece):
        at = moved_place(writer, place, first * stride)
        align = piece * walk.item
        if piece == 1:
            writer.add(f"store {t} {elements[first]}, ptr {at}, align {align}")
            continue
        vector = "poison"
        for j in range(piece):
            vector = writer.value(
                f"insertelement <{piece} x {t}> {vector}, {t} {elements[first + j]}, i32 {j}"
            )
        writer.add(f"store <{piece} x {t}> {vector}, ptr {at}, align {align}")


def moved_place(writer: PtxWriter, place: str, way: int) -> str:
    return place if way == 0 else writer.value(f"getelementptr i8, ptr {place}, i64 {way}")


def place_at(writer: PtxWriter, walk: GpuWalk, base: str, way: str) -> str:
    """Emit the address ``base`` moved by ``way``, an index."""
    if way == "0":
        return base
    distance = writer.to_i64(way)
    if walk.counts:
        return writer.value(f"add i64 {base}, {distance}")
    return writer.value(f"getelementptr i8, ptr {base}, i64 {distance}")
