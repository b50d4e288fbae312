"""Starts of dynamic slices: scalars computed once for a kernel, which offset the arrays' cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.record import Record, Word, record, sized
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from spmd.shape import PrimitiveType

#: Position of an array's cursor: an address, or a number that stands for an element.
Position: TypeAlias = Pointer | Int


@dataclass(frozen=True, slots=True)
class StartsStage:
    """Stage that computes starts. ``program`` gives them as s64; ``counted`` parameters are words, others pointers.

    shifts: for each parameter, the numbers of the previous stage's starts that move its pointer.
    """

    program: ScalarProgram
    counted: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]


@cache
def without_constants(program: ScalarProgram) -> tuple[ScalarProgram, tuple[int, ...]]:
    """Return `program` with its integer constants as parameters behind its own, and these constants as words.

    The slices of a module often start at (id + 1) % n, (id + 2) % n, ...: one function serves all of them.
    """
    count = len(program.parameters)
    lifted = [
        n
        for n, step in enumerate(program.steps)
        if isinstance(step, ScalarConstant) and step.kind.is_integer
    ]
    remaining = [n for n in range(len(program.steps)) if n not in set(lifted)]
    order = [*range(count), *(count + n for n in (*lifted, *remaining))]
    register = {old: new for new, old in enumerate(order)}
    constants = [step for n in lifted if isinstance(step := program.steps[n], ScalarConstant)]
    general = ScalarProgram(
        (*program.parameters, *(constant.kind for constant in constants)),
        tuple(_renumbered(program.steps[n], register) for n in remaining),
        tuple(register[r] for r in program.results),
    )
    return general, tuple(_signed(constant.bits) for constant in constants)


def _signed(bits: int) -> int:
    """Return up to 64 bits as the signed number that a record's word holds."""
    return bits - (1 << 64) if bits >> 63 else bits


def _renumbered(step: ScalarStep, register: Mapping[int, int]) -> ScalarStep:
    if isinstance(step, ScalarConstant):
        return step
    return replace(step, operands=tuple(register[r] for r in step.operands))


@dataclass(frozen=True, slots=True)
class StartsVariant:
    """Variant of the code of starts. shifts: for each array, the numbers of the last stage's starts that move it."""

    stages: tuple[StartsStage, ...]
    shifts: tuple[tuple[int, ...], ...]


@record
class ShiftRecord(Record):
    """Largest value of a start, and the stride of the dimension, in bytes or in ones."""

    limit: Word
    stride: Word


@record
class StageRecord(Record):
    """Parameters of a stage, which are addresses or numbers, and the shifts of those that earlier starts move."""

    parameters: Sequence[Word]
    shifts: Sequence[ShiftRecord]


@record
class StartsRecord(Record):
    """Words that ``computed_starts`` reads one by one, and then ``moved_by``: the stages, and the shifts of arrays."""

    stages: Sequence[StageRecord]
    shifts: Sequence[ShiftRecord]


@record
class NestRecord(Record):
    """Record of a loop nest: base addresses of its arrays (or numbers), sizes, strides, starts.

    Strides are given for each array, in bytes or in ones, in the order of ``sizes``. No size is 0.
    """

    firsts: Sequence[Word]
    sizes: Sequence[Word]
    strides: Sequence[Sequence[Word]] = sized("firsts", "sizes")
    starts: StartsRecord


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
