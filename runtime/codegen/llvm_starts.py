"""Where dynamic slices start: scalars computed once for a kernel, by which the arrays' cursors are moved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_nest import NestWriter
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class StartsStage:
    """``program`` gives starts (s64) of scalars; ``counted`` parameters are words, the others pointers to elements.

    shifts: for each parameter the numbers of the starts of the stage before that move its pointer.
    """

    program: ScalarProgram
    counted: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class StartsForm:
    """shifts: for each array the numbers of the last stage's starts that move it."""

    stages: tuple[StartsStage, ...]
    shifts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class StartsWords:
    """Of each stage the parameters' words (addresses, or numbers), limit and stride of each shift; so for arrays."""

    stages: Sequence[tuple[Sequence[int], Sequence[tuple[int, int]]]]
    shifts: Sequence[tuple[int, int]]

    def packed(self) -> list[int]:
        words: list[int] = []
        for parameters, shifts in (*self.stages, ((), self.shifts)):
            words += [*parameters, *itertools.chain.from_iterable(shifts)]
        return words


@dataclass(frozen=True, slots=True)
class NestWords:
    """A record of a loop nest: where its arrays begin (addresses, or numbers), sizes, strides, starts.

    Strides are of each array, in bytes or in ones, in the order of ``sizes``. No size is 0.
    """

    firsts: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]
    starts: StartsWords

    def packed(self) -> list[int]:
        strides = itertools.chain.from_iterable(self.strides)
        return [*self.firsts, *self.sizes, *strides, *self.starts.packed()]


def starts_ir(form: StartsForm) -> list[str]:
    """What ``shifted`` calls."""
    parts = []
    for number, stage in enumerate(form.stages):
        parts += program_ir(stage.program, f"starts{number}")
    return [*CLAMPS, *parts] if parts else []


#: What ``moved_inside`` calls.
CLAMPS = ("declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)")


def shifted(
    writer: NestWriter,
    form: StartsForm,
    cursors: Mapping[int, str],
    counts: Sequence[bool],
) -> dict[int, str]:
    """``cursors`` moved to where their slices start, which are moved inside; the record's next words say how."""
    starts = computed_starts(writer, form)
    return moved_by(writer, form.shifts, starts, cursors, counts)


def computed_starts(writer: NestWriter, form: StartsForm) -> list[str]:
    """What the last stage gives; the record's next words are its own and those of the stages before."""
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
            place = places[i]
            value = place if stage.counted[i] else writer.value(f"load {stored}, ptr {place}")
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
    """``cursors`` moved by those of ``starts`` whose numbers ``shifts`` has; the next words are limits and strides."""
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
    """``cursor`` moved by ``start`` steps of ``stride``: by 0 at least, by ``limit`` at most."""
    way = writer.value(f"mul i64 {inside(writer, start, limit)}, {stride}")
    return writer.moved(cursor, way, counts=counts)


def inside(writer: NestWriter, start: str, limit: str) -> str:
    """``start``, but 0 at least, and ``limit`` at most."""
    above = writer.value(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
    return writer.value(f"call i64 @llvm.smin.i64(i64 {above}, i64 {limit})")


def widened_index(writer: NestWriter, kind: PrimitiveType, index: str) -> str:
    """An index of type ``kind`` as an i64; what is beyond that is as far out as it can say."""
    if kind is PrimitiveType.U64:
        beyond = writer.value(f"icmp slt i64 {index}, 0")
        return writer.value(f"select i1 {beyond}, i64 {(1 << 63) - 1}, i64 {index}")
    if kind.byte_size == 8:
        return index
    extend = "sext" if kind.is_signed_integer else "zext"
    return writer.value(f"{extend} i{8 * kind.byte_size} {index} to i64")
