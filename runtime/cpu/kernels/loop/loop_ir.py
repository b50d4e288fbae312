"""Native code of a loop: a scalar program at every index of a strided space, its innermost dimension vectorized.

Sizes, strides and addresses are words of a record, so that one code serves all shapes. What the code depends on is the
program, the number of dimensions, and how each array moves along the innermost one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.dynamic_starts import (
    NestRecord,
    Position,
    StartsVariant,
    computed_starts,
    inside,
    moved_by,
    moved_to,
    starts_ir,
)
from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Record, Word, record
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
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
    starts: StartsVariant
    crossed: tuple[bool, ...] = ()
    ranges: tuple[tuple[int | None, int], ...] = ()
    together: int = 0


@record
class RangeRecord(Record):
    """Indices of a dimension that count: from ``first`` to ``end``, less the start, which is clamped to ``limit``."""

    limit: Word
    first: Word
    end: Word


@record
class LoopRecord(NestRecord):
    """Record of ``FUNCTION``."""

    ranges: Sequence[RangeRecord]


@cache
def loop_code(form: LoopForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    turning = {transpose_name(width): transpose_code(width) for width in _turned(form)}
    return host_jit().compile(loop_ir(form), (FUNCTION,), turning)


def loop_ir(form: LoopForm) -> str:
    module = Module(*program_ir(form.program, "body"), *starts_ir(form.starts))
    if any(form.crossed):
        module.declare(_PREFETCH)
    for width in _turned(form):
        module.declare(f"declare void @{transpose_name(width)}(ptr, i64, ptr, i64, i64, i64)")
    return _Loop(form, module).text()


def _turned(form: LoopForm) -> list[int]:
    """Bytes of the elements of crossed arrays that are transposed in registers."""
    program = form.program
    kinds = (*program.parameters, *(program.kind_of(result) for result in program.results))
    crossed = zip(kinds, form.crossed, strict=False)
    return sorted({kind.byte_size for kind, crosses in crossed if crosses} & TURNED)


class _Loop:
    """Writes the function: a loop per dimension, in each a cursor per array that steps along."""

    def __init__(self, form: LoopForm, module: Module) -> None:
        self.form = form
        program = form.program
        self.f = FunctionWriter(FUNCTION, Record, module=module)
        kinds = (*program.parameters, *(program.kind_of(r) for r in program.results))
        self.types = [stored_type(kind) for kind in kinds]
        self.steps = (*form.leaves, *form.results)
        self.counted = (*form.counted, *[False] * len(form.results))
        self.inputs = len(form.leaves)
        self.arrays = range(len(kinds))
        self.sizes = [kind.byte_size for kind in kinds]
        self.buffers = {
            i: self.f.array(TILE * PITCH, self.types[i])
            for i, crossed in enumerate(form.crossed)
            if crossed
        }

    def text(self) -> str:
        rank = self.form.rank
        next_word = self.f.next_word
        first: dict[int, Position] = {
            i: next_word("i64" if self.counted[i] else "ptr") for i in self.arrays
        }
        sizes: list[Int] = [next_word() for _ in range(rank)]
        strides: dict[int, list[Int]] = {i: [next_word() for _ in range(rank)] for i in self.arrays}
        starts = computed_starts(self.f, self.form.starts)
        start = moved_by(self.f, self.form.starts.shifts, starts, first)
        if not self.form.ranges:
            self.nest(0, sizes, start, strides)
            return self.f.end()
        spans = self.spans(starts, sizes)
        conditions = [begin < end for begin, end in spans.values()]
        some = conditions[0]
        for condition in conditions[1:]:
            some = some & condition
        for d, (begin, end) in spans.items():
            if d is not None:
                sizes[d] = end - begin
                start = {i: moved_to(at, begin * strides[i][d]) for i, at in start.items()}
        with self.f.when(some):
            self.nest(0, sizes, start, strides)
        return self.f.end()

    def spans(
        self, starts: Sequence[Int], sizes: Sequence[Int]
    ) -> dict[int | None, tuple[Int, Int]]:
        """From and to which index each dimension that has ranges is walked; the record's next words say it."""
        next_word = self.f.next_word
        spans: dict[int | None, tuple[Int, Int]] = {}
        for d, number in self.form.ranges:
            limit, first, end = next_word(), next_word(), next_word()
            moved = inside(starts[number], limit)
            begins, ends = first - moved, end - moved
            begin, last = spans.get(
                d, (self.f.constant(0), self.f.constant(1) if d is None else sizes[d])
            )
            spans[d] = begin.smax(begins), last.smin(ends)
        return spans

    def nest(
        self, d: int, sizes: list[Int], start: dict[int, Position], strides: dict[int, list[Int]]
    ) -> None:
        if d == self.form.rank - 1:
            self.row(sizes[d], start, {i: own[d] for i, own in strides.items()})
            return
        if d == self.form.rank - 2 and any(self.form.crossed):
            self.tiles(d, sizes, start, strides)
            return
        cursors = {i: Cursor(start[i], strides[i][d]) for i in self.arrays}
        with self.f.cursor_loop(sizes[d], cursors) as (_, here):
            self.nest(d + 1, sizes, here, strides)

    def tiles(
        self, d: int, sizes: list[Int], start: dict[int, Position], strides: dict[int, list[Int]]
    ) -> None:
        """Over the last two dimensions, ``d`` and the innermost."""
        inner = {i: own[d + 1] for i, own in strides.items()}
        across = {i: own[d] for i, own in strides.items()}
        rows_of = {i: Cursor(at, across[i]) for i, at in start.items()}
        with self.f.blocks(sizes[d], TILE, rows_of) as (_, rows, band):
            columns_of = {i: Cursor(at, inner[i]) for i, at in band.items()}
            with self.f.blocks(sizes[d + 1], TILE, columns_of) as (_, columns, tile):
                self.tile(rows, columns, tile, across, inner)

    def tile(
        self,
        rows: Int,
        columns: Int,
        here: dict[int, Position],
        across: dict[int, Int],
        inner: dict[int, Int],
    ) -> None:
        """Crossed leaves go to buffers, rows of which are computed with; crossed results come from such buffers."""
        crossed = [i for i in self.arrays if self.form.crossed[i]]
        for i in crossed:
            if i < self.inputs:
                self.transpose(i, rows, columns, here[i], inner[i], into_buffer=True)
        cursors = {
            i: Cursor(self.buffers[i], PITCH * self.sizes[i])
            if i in crossed
            else Cursor(at, across[i])
            for i, at in here.items()
        }
        with self.f.cursor_loop(rows, cursors) as (_, row):
            self.row(columns, row, inner)
        for i in crossed:
            if i >= self.inputs:
                self.transpose(i, rows, columns, here[i], inner[i], into_buffer=False)

    def transpose(
        self, i: int, rows: Int, columns: Int, here: Position, stride: Int, *, into_buffer: bool
    ) -> None:
        """Between array ``i``, neighbours in a column, and its buffer, neighbours in a row."""
        f, size, buffer = self.f, self.sizes[i], self.buffers[i]
        assert isinstance(here, Pointer)
        if into_buffer:
            later = here.at(stride * (TILE if size in TURNED else AHEAD))
            with f.cursor_loop(columns, {0: Cursor(later, stride)}) as (_, at):
                for line in range(0, TILE * size, LINE_BYTES):
                    place = at[0].at(line)
                    f.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
        if size in TURNED:
            array, own = (here, stride), (buffer, f.constant(PITCH * size))
            if into_buffer:
                f.call("void", transpose_name(size), *array, *own, columns, rows)
            else:
                f.call("void", transpose_name(size), *own, *array, rows, columns)
            return
        cursors = {0: Cursor(here, stride), 1: Cursor(buffer, size)}
        with f.cursor_loop(columns, cursors) as (_, at):
            self.column(i, rows, at, into_buffer=into_buffer)

    def column(self, i: int, rows: Int, at: dict[int, Pointer], *, into_buffer: bool) -> None:
        """Write IR that moves a column between array ``i`` at ``at[0]`` and its buffer at ``at[1]``."""
        t = self.types[i]
        with self.f.vector_loop(rows) as k:
            places = at[0].element(t, k), at[1].element(t, k * PITCH)
            source, target = places if into_buffer else reversed(places)
            target.store(source.load(t))

    def row(self, size: Int, start: dict[int, Position], stride: dict[int, Int]) -> None:
        """The innermost dimension: what is repeated is read before it."""
        repeated = [i for i in range(self.inputs) if self.steps[i] is Step.REPEATED]
        elements = {i: self.read(i, start[i]) for i in repeated}
        with self.f.vector_loop(size, self.form.together) as k:
            places = {
                i: self.place(i, start[i], stride[i], k) for i in self.arrays if i not in repeated
            }
            for i in range(self.inputs):
                if i not in repeated:
                    elements[i] = self.read(i, places[i])
            struct, count = struct_type(self.form.program), len(self.form.results)
            arguments = [elements[i] for i in range(self.inputs)]
            for i, result in enumerate(
                self.f.results(struct, count, "body", *arguments), self.inputs
            ):
                place = places[i]
                assert isinstance(place, Pointer)
                place.store(result)

    def place(self, i: int, row: Position, stride: IntLike, k: Int) -> Position:
        """Element ``k`` of a row."""
        step = self.steps[i]
        if isinstance(row, Int):
            return row + (k if step is Step.PACKED else k * stride)
        if step is Step.PAIRED:
            return row.element(f"[2 x {self.types[i]}]", k)
        return row.element(self.types[i], k) if step is Step.PACKED else row.at(k * stride)

    def read(self, i: int, place: Position) -> Any:
        """An element, of memory or the number itself."""
        return place.load(self.types[i]) if isinstance(place, Pointer) else place
