"""Native code of a loop: a scalar program at every index of a strided space, its innermost dimension vectorized.

Sizes, strides and addresses are words of a record, so that one code serves all shapes. What the code depends on is the
program, the number of dimensions, and how each array moves along the innermost one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.ir.dynamic_starts import (
    StartsForm,
    computed_starts,
    inside,
    moved_by,
    starts_ir,
)
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.copy.transpose_ir import transpose_code, transpose_name
from runtime.program.scalar_program import ScalarProgram

FUNCTION = "spmd_loop"
#: Rows and columns of a tile: whole lines of cache either way.
TILE = 64
#: Elements from a row of a tile's buffer to the next one: were it a power of two, a column would lie in few sets of the
#: cache.
PITCH = TILE + 16
#: Columns of a crossed leaf that are fetched before their turn: the processor does not foresee where one begins.
AHEAD = 16
#: Bytes of elements that are transposed in registers, for which a whole tile is fetched before its turn.
TURNED = frozenset({1, 2, 4, 8})
LINE_BYTES = 64
_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


class Step(Enum):
    """Stride of an array along the innermost dimension."""

    PACKED = "packed"
    PAIRED = "paired"
    """Every other element, such as the parts of complex numbers are."""
    REPEATED = "repeated"
    STRIDED = "strided"

    @classmethod
    def of(cls, stride: int, item: int) -> Step:
        """Return the kind of a stride of ``stride`` bytes between elements of ``item`` bytes."""
        if stride == item:
            return cls.PACKED
        return cls.REPEATED if stride == 0 else cls.STRIDED


@dataclass(frozen=True, slots=True)
class LoopForm:
    """leaves, results: how each moves. counted: leaves that are numbers (s64), not memory. rank: at least one.

    crossed: leaves, then results, whose neighbours lie along the dimension before the innermost: these are transposed
    tile by tile. Empty where there are none. ranges: dimensions of which not all indices count (None: of a single one),
    and the starts, by number, that say which. together: vectors that the innermost loop computes side by side.
    """

    program: ScalarProgram
    rank: int
    leaves: tuple[Step, ...]
    results: tuple[Step, ...]
    counted: tuple[bool, ...]
    starts: StartsForm
    crossed: tuple[bool, ...] = ()
    ranges: tuple[tuple[int | None, int], ...] = ()
    together: int = 0


@cache
def loop_code(form: LoopForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    turning = {transpose_name(width): transpose_code(width) for width in _turned(form)}
    return host_jit().compile(loop_ir(form), (FUNCTION,), turning)


def loop_ir(form: LoopForm) -> str:
    program = form.program
    return "\n".join(
        [
            *dict.fromkeys([*program_ir(program, "body"), *starts_ir(form.starts)]),
            *([_PREFETCH] if any(form.crossed) else []),
            *(_transpose_declared(width) for width in _turned(form)),
            _Loop(form).function(),
        ]
    )


def _turned(form: LoopForm) -> list[int]:
    """Bytes of the elements of crossed arrays that are transposed in registers."""
    program = form.program
    kinds = (*program.parameters, *(program.kind_of(result) for result in program.results))
    crossed = zip(kinds, form.crossed, strict=False)
    return sorted({kind.byte_size for kind, crosses in crossed if crosses} & TURNED)


def _transpose_declared(width: int) -> str:
    return f"declare void @{transpose_name(width)}(ptr, i64, ptr, i64, i64, i64)"


class _Loop:
    """Writes the function: a loop per dimension, in each a cursor per array that steps along."""

    def __init__(self, form: LoopForm) -> None:
        self.form = form
        program = form.program
        self.writer = NestWriter()
        kinds = (*program.parameters, *(program.kind_of(r) for r in program.results))
        self.types = [stored_type(kind) for kind in kinds]
        self.steps = (*form.leaves, *form.results)
        self.counted = (*form.counted, *[False] * len(form.results))
        self.inputs = len(form.leaves)
        self.arrays = range(len(kinds))
        self.sizes = [kind.byte_size for kind in kinds]
        self.buffers = {
            i: self.writer.value(f"alloca [{TILE * PITCH} x {self.types[i]}], align 64")
            for i, crossed in enumerate(form.crossed)
            if crossed
        }

    def function(self) -> str:
        rank = self.form.rank
        next_word = self.writer.next_word
        first = {i: next_word(self.cursor_type(i)) for i in self.arrays}
        sizes = [next_word() for _ in range(rank)]
        strides = {i: [next_word() for _ in range(rank)] for i in self.arrays}
        starts = computed_starts(self.writer, self.form.starts)
        start = moved_by(self.writer, self.form.starts.shifts, starts, first, self.counted)
        if not self.form.ranges:
            self.nest(0, sizes, start, strides)
            return self.writer.function(FUNCTION)
        spans = self.spans(starts, sizes)
        conditions = [self.writer.value(f"icmp slt i64 {a}, {b}") for a, b in spans.values()]
        some = conditions[0]
        for condition in conditions[1:]:
            some = self.writer.value(f"and i1 {some}, {condition}")
        for d, (begin, end) in spans.items():
            if d is not None:
                sizes[d] = self.writer.value(f"sub i64 {end}, {begin}")
                start = {
                    i: self.writer.moved(
                        at,
                        self.writer.value(f"mul i64 {begin}, {strides[i][d]}"),
                        counts=self.counted[i],
                    )
                    for i, at in start.items()
                }
        with self.writer.when(some):
            self.nest(0, sizes, start, strides)
        return self.writer.function(FUNCTION)

    def spans(
        self, starts: Sequence[str], sizes: Sequence[str]
    ) -> dict[int | None, tuple[str, str]]:
        """From and to which index each dimension that has ranges is walked; the record's next words say it."""
        value, next_word = self.writer.value, self.writer.next_word
        spans: dict[int | None, tuple[str, str]] = {}
        for d, number in self.form.ranges:
            limit, first, end = next_word(), next_word(), next_word()
            moved = inside(self.writer, starts[number], limit)
            begins, ends = (value(f"sub i64 {edge}, {moved}") for edge in (first, end))
            begin, last = spans.get(d, ("0", "1" if d is None else sizes[d]))
            spans[d] = (
                value(f"call i64 @llvm.smax.i64(i64 {begin}, i64 {begins})"),
                value(f"call i64 @llvm.smin.i64(i64 {last}, i64 {ends})"),
            )
        return spans

    def cursor_type(self, i: int) -> str:
        return "i64" if self.counted[i] else "ptr"

    def nest(
        self, d: int, sizes: list[str], start: dict[int, str], strides: dict[int, list[str]]
    ) -> None:
        if d == self.form.rank - 1:
            self.row(sizes[d], start, {i: own[d] for i, own in strides.items()})
            return
        if d == self.form.rank - 2 and any(self.form.crossed):
            self.tiles(d, sizes, start, strides)
            return
        cursors = {i: Cursor(start[i], strides[i][d], self.counted[i]) for i in self.arrays}
        with self.writer.loop(sizes[d], cursors) as (_, here):
            self.nest(d + 1, sizes, here, strides)

    def tiles(
        self, d: int, sizes: list[str], start: dict[int, str], strides: dict[int, list[str]]
    ) -> None:
        """Over the last two dimensions, ``d`` and the innermost."""
        inner = {i: own[d + 1] for i, own in strides.items()}
        across = {i: own[d] for i, own in strides.items()}
        bands = self.cut(sizes[d], start, across)
        with bands as (rows, band), self.cut(sizes[d + 1], band, inner) as (columns, tile):
            self.tile(rows, columns, tile, across, inner)

    @contextmanager
    def cut(
        self, size: str, start: dict[int, str], strides: dict[int, str]
    ) -> Iterator[tuple[str, dict[int, str]]]:
        """A loop over pieces of ``TILE`` indices: how many there are in the piece, and its cursors."""
        value = self.writer.value
        above = value(f"add i64 {size}, {TILE - 1}")
        pieces = value(f"udiv i64 {above}, {TILE}")
        cursors = {
            i: Cursor(at, value(f"mul i64 {strides[i]}, {TILE}"), self.counted[i])
            for i, at in start.items()
        }
        with self.writer.loop(pieces, cursors) as (number, here):
            before = value(f"mul i64 {number}, {TILE}")
            left = value(f"sub i64 {size}, {before}")
            short = value(f"icmp ult i64 {left}, {TILE}")
            yield value(f"select i1 {short}, i64 {left}, i64 {TILE}"), here

    def tile(
        self,
        rows: str,
        columns: str,
        here: dict[int, str],
        across: dict[int, str],
        inner: dict[int, str],
    ) -> None:
        """Crossed leaves go to buffers, rows of which are computed with; crossed results come from such buffers."""
        crossed = [i for i in self.arrays if self.form.crossed[i]]
        for i in crossed:
            if i < self.inputs:
                self.transpose(i, rows, columns, here[i], inner[i], into_buffer=True)
        from_row = {i: str(PITCH * self.sizes[i]) if i in crossed else across[i] for i in here}
        cursors = {
            i: Cursor(self.buffers[i] if i in crossed else at, from_row[i], self.counted[i])
            for i, at in here.items()
        }
        with self.writer.loop(rows, cursors) as (_, row):
            self.row(columns, row, inner)
        for i in crossed:
            if i >= self.inputs:
                self.transpose(i, rows, columns, here[i], inner[i], into_buffer=False)

    def transpose(
        self, i: int, rows: str, columns: str, here: str, stride: str, *, into_buffer: bool
    ) -> None:
        """Between array ``i``, neighbours in a column, and its buffer, neighbours in a row."""
        writer, size = self.writer, self.sizes[i]
        if into_buffer:
            ahead = writer.value(f"mul i64 {stride}, {TILE if size in TURNED else AHEAD}")
            later = writer.value(f"getelementptr i8, ptr {here}, i64 {ahead}")
            with writer.loop(columns, {0: Cursor(later, stride)}) as (_, at):
                for line in range(0, TILE * size, LINE_BYTES):
                    place = writer.value(f"getelementptr i8, ptr {at[0]}, i64 {line}")
                    writer.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
        if size in TURNED:
            array, buffer = (
                f"ptr {here}, i64 {stride}",
                f"ptr {self.buffers[i]}, i64 {PITCH * size}",
            )
            ends = f"{array}, {buffer}" if into_buffer else f"{buffer}, {array}"
            counts = f"i64 {columns}, i64 {rows}" if into_buffer else f"i64 {rows}, i64 {columns}"
            writer.add(f"call void @{transpose_name(size)}({ends}, {counts})")
            return
        cursors = {0: Cursor(here, stride), 1: Cursor(self.buffers[i], str(size))}
        with writer.loop(columns, cursors) as (_, at):
            self.column(i, rows, at, into_buffer=into_buffer)

    def column(self, i: int, rows: str, at: dict[int, str], *, into_buffer: bool) -> None:
        """Write IR that moves a column between array ``i`` at ``at[0]`` and its buffer at ``at[1]``."""
        writer, t = self.writer, self.types[i]
        with writer.element_loop(rows) as k:
            way = writer.value(f"mul i64 {k}, {PITCH}")
            array = writer.value(f"getelementptr {t}, ptr {at[0]}, i64 {k}")
            buffer = writer.value(f"getelementptr {t}, ptr {at[1]}, i64 {way}")
            source, target = (array, buffer) if into_buffer else (buffer, array)
            element = writer.value(f"load {t}, ptr {source}{INDEPENDENT}")
            writer.add(f"store {t} {element}, ptr {target}{INDEPENDENT}")

    def row(self, size: str, start: dict[int, str], stride: dict[int, str]) -> None:
        """The innermost dimension: what is repeated is read before it."""
        writer, elements = self.writer, {}
        repeated = [i for i in range(self.inputs) if self.steps[i] is Step.REPEATED]
        for i in repeated:
            elements[i] = self.read(i, start[i], "")
        with writer.element_loop(size, self.form.together) as k:
            places = {
                i: self.place(i, start[i], stride[i], k) for i in self.arrays if i not in repeated
            }
            for i in range(self.inputs):
                if i not in repeated:
                    elements[i] = self.read(i, places[i], INDEPENDENT)
            struct = struct_type(self.form.program)
            arguments = ", ".join(f"{self.types[i]} {elements[i]}" for i in range(self.inputs))
            values = writer.value(f"call {struct} @body({arguments})")
            results = [
                writer.value(f"extractvalue {struct} {values}, {number}")
                for number in range(len(self.form.results))
            ]
            for number, result in enumerate(results):
                i = self.inputs + number
                writer.add(f"store {self.types[i]} {result}, ptr {places[i]}{INDEPENDENT}")

    def place(self, i: int, row: str, stride: str, k: str) -> str:
        """Element ``k`` of a row."""
        if self.steps[i] is Step.PAIRED:
            return self.writer.value(f"getelementptr [2 x {self.types[i]}], ptr {row}, i64 {k}")
        if self.steps[i] is not Step.PACKED:
            way = self.writer.value(f"mul i64 {k}, {stride}")
            return self.writer.moved(row, way, counts=self.counted[i])
        if self.counted[i]:
            return self.writer.value(f"add i64 {row}, {k}")
        return self.writer.value(f"getelementptr {self.types[i]}, ptr {row}, i64 {k}")

    def read(self, i: int, place: str, metadata: str) -> str:
        """An element, of memory or the number itself."""
        if self.counted[i]:
            return place
        return self.writer.value(f"load {self.types[i]}, ptr {place}{metadata}")
