"""Starts of dynamic slices: scalars computed once for a kernel, which offset the arrays' cursors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import NestWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from spmd.shape import PrimitiveType


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
    kept = [n for n in range(len(program.steps)) if n not in set(lifted)]
    order = [*range(count), *(count + n for n in (*lifted, *kept))]
    register = {old: new for new, old in enumerate(order)}
    constants = [step for n in lifted if isinstance(step := program.steps[n], ScalarConstant)]
    general = ScalarProgram(
        (*program.parameters, *(constant.kind for constant in constants)),
        tuple(_renumbered(program.steps[n], register) for n in kept),
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
class StartsForm:
    """Specialization of starts. shifts: for each array, the numbers of the last stage's starts that move it."""

    stages: tuple[StartsStage, ...]
    shifts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class StartsWords:
    """Record words: for each stage its parameters (addresses, or numbers) and (limit, stride) of each shift.

    ``shifts``: (limit, stride) of the shifts of arrays.
    """

    stages: Sequence[tuple[Sequence[int], Sequence[tuple[int, int]]]]
    shifts: Sequence[tuple[int, int]]

    def packed(self) -> list[int]:
        words: list[int] = []
        for parameters, shifts in (*self.stages, ((), self.shifts)):
            words += [*parameters, *itertools.chain.from_iterable(shifts)]
        return words


@dataclass(frozen=True, slots=True)
class NestWords:
    """Record of a loop nest: base addresses of its arrays (or numbers), sizes, strides, starts.

    Strides are given for each array, in bytes or in ones, in the order of ``sizes``. No size is 0.
    """

    firsts: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]
    starts: StartsWords

    def packed(self) -> list[int]:
        strides = itertools.chain.from_iterable(self.strides)
        return [*self.firsts, *self.sizes, *strides, *self.starts.packed()]


def starts_ir(form: StartsForm) -> list[str]:
    """Return the functions that ``shifted`` calls."""
    parts = []
    for number, stage in enumerate(form.stages):
        parts += program_ir(stage.program, f"starts{number}")
    return [*CLAMPS, *parts] if parts else []


#: Functions that ``moved_inside`` calls.
CLAMPS = ("declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)")


def shifted(
    writer: NestWriter,
    form: StartsForm,
    cursors: Mapping[int, str],
    counts: Sequence[bool],
) -> dict[int, str]:
    """Move ``cursors`` to the clamped starts of their slices; the record's next words contain the parameters."""
    starts = computed_starts(writer, form)
    return moved_by(writer, form.shifts, starts, cursors, counts)


def computed_starts(writer: NestWriter, form: StartsForm) -> list[str]:
    """Emit the starts of the last stage; the record's next words are those of all stages."""
    starts: list[str] = []
    for number, stage in enumerate(form.stages):
        words = {
            i: writer.next_word("i64" if counted else "ptr")
            for i, counted in enumerate(stage.counted)
        }
        places = moved_by(writer, stage.shifts, starts, words, stage.counted)
        program = stage.program
        arguments = []
        for i, kind in enumerate(program.parameters):
            stored = stored_type(kind)
            if not stage.counted[i]:
                value = writer.value(f"load {stored}, ptr {places[i]}")
            elif stored == "i64":
                value = places[i]
            else:
                value = writer.value(f"trunc i64 {places[i]} to {stored}")
            arguments.append(f"{stored} {value}")
        struct = struct_type(program)
        values = writer.value(f"call {struct} @starts{number}({', '.join(arguments)})")
        starts = [
            writer.value(f"extractvalue {struct} {values}, {n}")
            for n in range(len(program.results))
        ]
    return starts


def moved_by(
    writer: NestWriter,
    shifts: Sequence[Sequence[int]],
    starts: Sequence[str],
    cursors: Mapping[int, str],
    counts: Sequence[bool],
) -> dict[int, str]:
    """Move ``cursors`` by the ``starts`` whose numbers are in ``shifts``; the next words are limits and strides."""
    moved = dict(cursors)
    for i, numbers in enumerate(shifts):
        for number in numbers:
            limit, stride = writer.next_word(), writer.next_word()
            moved[i] = moved_inside(
                writer, moved[i], starts[number], limit, stride, counts=counts[i]
            )
    return moved


def moved_inside(
    writer: NestWriter, cursor: str, start: str, limit: str, stride: str, *, counts: bool = False
) -> str:
    """Move ``cursor`` by ``start``, clamped to [0, ``limit``], times ``stride``."""
    way = writer.value(f"mul i64 {inside(writer, start, limit)}, {stride}")
    return writer.moved(cursor, way, counts=counts)


def inside(writer: NestWriter, start: str, limit: str) -> str:
    """Clamp ``start`` to [0, ``limit``]."""
    above = writer.value(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
    return writer.value(f"call i64 @llvm.smin.i64(i64 {above}, i64 {limit})")


def widened_index(writer: NestWriter, kind: PrimitiveType, index: str) -> str:
    """Convert an index of type ``kind`` to i64; larger values of u64 are clamped."""
    if kind is PrimitiveType.U64:
        beyond = writer.value(f"icmp slt i64 {index}, 0")
        return writer.value(f"select i1 {beyond}, i64 {(1 << 63) - 1}, i64 {index}")
    if kind.byte_size == 8:
        return index
    extend = "sext" if kind.is_signed_integer else "zext"
    return writer.value(f"{extend} i{8 * kind.byte_size} {index} to i64")
