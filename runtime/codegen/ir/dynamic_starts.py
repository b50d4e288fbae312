"""Starts of dynamic slices: scalars that a kernel computes once and that offset the cursors of its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.program.slice_starts import StartsVariant
from spmd.shape import PrimitiveType

#: Cursor of an array: an address, or for an iota-like array the number that is its element.
Position: TypeAlias = Pointer | Int


def starts_ir(variant: StartsVariant) -> list[str]:
    """Return the functions that ``computed_starts`` calls, one for each stage."""
    parts: list[str] = []
    for number, stage in enumerate(variant.stages):
        parts += program_ir(stage.program, f"starts{number}")
    return parts


def shifted(
    writer: FunctionWriter, variant: StartsVariant, cursors: Mapping[int, Position]
) -> dict[int, Position]:
    """Return ``cursors`` moved to the clamped starts of their slices.

    The next words of the record must be those of a StartsRecord of this ``variant``.
    """
    return moved_by(writer, variant.shifts, computed_starts(writer, variant), cursors)


def computed_starts(writer: FunctionWriter, variant: StartsVariant) -> list[Int]:
    """Write the computation of all stages and return the starts of the last one.

    The next words of the record must be those of the stages.
    """
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
    """Return ``cursors`` moved by the ``starts`` whose numbers ``shifts`` lists for each cursor.

    The next words of the record must be the limits and strides of these shifts.
    """
    moved = dict(cursors)
    for i, numbers in enumerate(shifts):
        for number in numbers:
            limit, stride = writer.next_word(), writer.next_word()
            moved[i] = moved_to(moved[i], inside(starts[number], limit) * stride)
    return moved


def moved_to(position: Position, way: IntLike) -> Position:
    """Return ``position`` moved by ``way``: by bytes if it is an address, otherwise added to the number."""
    return position.at(way) if isinstance(position, Pointer) else position + way


def inside(start: Int, limit: IntLike) -> Int:
    """Return ``start`` clamped to [0, ``limit``]."""
    return start.smax(0).smin(limit)


def widened_index(kind: PrimitiveType, index: Int) -> Int:
    """Return ``index``, of integer type ``kind``, as an i64. Values of u64 beyond its range become the largest i64."""
    if kind is PrimitiveType.U64:
        return (index < 0).select(index.constant((1 << 63) - 1), index)
    return index.resized("i64", signed=kind.is_signed_integer)
