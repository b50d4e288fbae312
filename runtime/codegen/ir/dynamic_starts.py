"""Starts of dynamic slices: scalars computed once for a kernel, which offset the arrays' cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.codegen.starts import StartsVariant
from spmd.shape import PrimitiveType

#: Position of an array's cursor: an address, or a number that stands for an element.
Position: TypeAlias = Pointer | Int


def starts_ir(variant: StartsVariant) -> list[str]:
    """Return the functions that ``computed_starts`` calls."""
    parts: list[str] = []
    for number, stage in enumerate(variant.stages):
        parts += program_ir(stage.program, f"starts{number}")
    return parts


def shifted(
    writer: FunctionWriter, variant: StartsVariant, cursors: Mapping[int, Position]
) -> dict[int, Position]:
    """Move ``cursors`` to the clamped starts of their slices; the record's next words contain the parameters."""
    return moved_by(writer, variant.shifts, computed_starts(writer, variant), cursors)


def computed_starts(writer: FunctionWriter, variant: StartsVariant) -> list[Int]:
    """Emit the starts of the last stage; the record's next words are those of all stages."""
    starts: list[Int] = []
    for number, stage in enumerate(variant.stages):
        parameters: dict[int, Position] = {
            i: writer.next_word("i64" if counted else "ptr")
            for i, counted in enumerate(stage.counted)
        }
        moved = moved_by(writer, stage.shifts, starts, parameters)
        program = stage.program
        arguments = []
        for i, kind in enumerate(program.parameters):
            parameter, stored = moved[i], stored_type(kind)
            if isinstance(parameter, Int):
                arguments.append(parameter.resized(stored))
            else:
                arguments.append(parameter.load(stored))
        count = len(program.results)
        starts = writer.results(struct_type(program), count, f"starts{number}", *arguments)
    return starts


def moved_by(
    writer: FunctionWriter,
    shifts: Sequence[Sequence[int]],
    starts: Sequence[Int],
    cursors: Mapping[int, Position],
) -> dict[int, Position]:
    """Move ``cursors`` by the ``starts`` whose numbers are in ``shifts``; the next words are limits and strides."""
    moved = dict(cursors)
    for i, numbers in enumerate(shifts):
        for number in numbers:
            limit, stride = writer.next_word(), writer.next_word()
            moved[i] = moved_to(moved[i], inside(starts[number], limit) * stride)
    return moved


def moved_to(position: Position, way: IntLike) -> Position:
    """Move an address by ``way`` bytes, or a number by as many ones."""
    return position.at(way) if isinstance(position, Pointer) else position + way


def inside(start: Int, limit: IntLike) -> Int:
    """Clamp ``start`` to [0, ``limit``]."""
    return start.smax(0).smin(limit)


def widened_index(kind: PrimitiveType, index: Int) -> Int:
    """Convert an index of type ``kind`` to i64; larger values of u64 are clamped."""
    if kind is PrimitiveType.U64:
        return (index < 0).select(index.constant((1 << 63) - 1), index)
    return index.resized("i64", signed=kind.is_signed_integer)
