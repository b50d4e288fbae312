"""Native code of a loop: a scalar program at every index of a strided space, its innermost dimension vectorized.

Sizes, strides and addresses are fields of a record, so that one code serves all shapes. The code depends on the
program, the rank, and the kind of each array's stride along the innermost dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.dynamic_starts import (
    Position,
    computed_starts,
    inside,
    moved_by,
    moved_to,
    starts_ir,
)
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.values import Pointer
from runtime.codegen.ir.vectors import prefetch
from runtime.cpu.kernels.copy.copy import transpose_name
from runtime.cpu.kernels.loop.loop import FUNCTION, InnerStride, LoopVariant, transposed_widths
from runtime.program.argument_record import Record

#: Rows and columns of a tile, which has full cache lines along both (Zen 5, x + x^T of f32: 32 take 1.0 to 1.6 times as
#: long, 128 take 0.8 to 1.1 times).
TILE = 64
#: Row stride of a tile's buffer in elements. With a power of two a column would map to few sets of the cache (Zen 5:
#: a power of two takes 0.94 to 1.02 of the time).
PITCH = TILE + 16
#: Size of a cache line in bytes.
LINE_BYTES = 64


def loop_ir(variant: LoopVariant) -> str:
    """Return the IR of ``loop_code``."""
    module = Module(*program_ir(variant.program, "body"), *starts_ir(variant.starts))
    for width in transposed_widths(variant):
        module.declare(f"declare void @{transpose_name(width)}(ptr, i64, ptr, i64, i64, i64)")
    return _Loop(variant, module).text()


class _Loop:
    """Writer of the function: a loop for each dimension, with a cursor for each array, leaves first."""

    def __init__(self, variant: LoopVariant, module: Module) -> None:
        self.variant = variant
        program = variant.program
        self.f = FunctionWriter(FUNCTION, Record, module=module)
        kinds = (*program.parameters, *(program.kind_of(r) for r in program.results))
        self.types = [stored_type(kind) for kind in kinds]
        self.steps = (*variant.leaves, *variant.results)
        self.counted = (*variant.counted, *[False] * len(variant.results))
        self.inputs = len(variant.leaves)
        self.arrays = range(len(kinds))
        self.sizes = [kind.byte_size for kind in kinds]
        self.buffers = {
            i: self.f.array(TILE * PITCH, self.types[i])
            for i, crossed in enumerate(variant.crossed)
            if crossed
        }

    def text(self) -> str:
        rank = self.variant.rank
        next_word = self.f.next_word
        first: dict[int, Position] = {
            i: next_word("i64" if self.counted[i] else "ptr") for i in self.arrays
        }
        sizes: list[Int] = [next_word() for _ in range(rank)]
        strides: dict[int, list[Int]] = {i: [next_word() for _ in range(rank)] for i in self.arrays}
        starts = computed_starts(self.f, self.variant.starts)
        start = moved_by(self.f, self.variant.starts.shifts, starts, first)
        if not self.variant.ranges:
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
        """Return for each dimension with ranges the first index and the (exclusive) end of the ranges' intersection.

        The next words of the record must be the RangeRecords. The span of the key None is [0, 1) or empty.
        """
        next_word = self.f.next_word
        spans: dict[int | None, tuple[Int, Int]] = {}
        for d, number in self.variant.ranges:
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
        """Write the loops over the dimensions from ``d`` on."""
        if d == self.variant.rank - 1:
            self.row(sizes[d], start, {i: own[d] for i, own in strides.items()})
            return
        if d == self.variant.rank - 2 and any(self.variant.crossed):
            self.tiles(d, sizes, start, strides)
            return
        cursors = {i: Cursor(start[i], strides[i][d]) for i in self.arrays}
        with self.f.cursor_loop(sizes[d], cursors) as (_, here):
            self.nest(d + 1, sizes, here, strides)

    def tiles(
        self, d: int, sizes: list[Int], start: dict[int, Position], strides: dict[int, list[Int]]
    ) -> None:
        """Write the loops over the tiles of the last two dimensions, ``d`` and the innermost one."""
        inner = {i: own[d + 1] for i, own in strides.items()}
        across = {i: own[d] for i, own in strides.items()}
        rows_of = {i: Cursor(at, across[i]) for i, at in start.items()}
        with self.f.blocks(sizes[d], TILE, rows_of) as (_, rows, row_block):
            columns_of = {i: Cursor(at, inner[i]) for i, at in row_block.items()}
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
        """Write the code of a tile of ``rows`` by ``columns`` indices, whose first one has the positions ``here``.

        Crossed leaves are transposed into buffers before the loops, and crossed results out of buffers after them.
        """
        crossed = [i for i in self.arrays if self.variant.crossed[i]]
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
        """Transpose a tile between array ``i``, whose columns are contiguous, and its buffer, whose rows are."""
        f, size, buffer = self.f, self.sizes[i], self.buffers[i]
        assert isinstance(here, Pointer)
        if into_buffer:  # the next tile is prefetched while this one is computed
            with f.cursor_loop(columns, {0: Cursor(here.at(stride * TILE), stride)}) as (_, at):
                for line in range(0, TILE * size, LINE_BYTES):
                    prefetch(at[0].at(line), 2)
        array, own = (here, stride), (buffer, f.constant(PITCH * size))
        if into_buffer:
            f.call("void", transpose_name(size), *array, *own, columns, rows)
        else:
            f.call("void", transpose_name(size), *own, *array, rows, columns)

    def row(self, size: Int, start: dict[int, Position], stride: dict[int, Int]) -> None:
        """Write the innermost loop. Elements that do not change along it are loaded before it."""
        repeated = [i for i in range(self.inputs) if self.steps[i] is InnerStride.REPEATED]
        elements = {i: self.read(i, start[i]) for i in repeated}
        with self.f.vector_loop(size) as k:
            positions = {
                i: self.position(i, start[i], stride[i], k)
                for i in self.arrays
                if i not in repeated
            }
            for i in range(self.inputs):
                if i not in repeated:
                    elements[i] = self.read(i, positions[i])
            struct, count = struct_type(self.variant.program), len(self.variant.results)
            arguments = [elements[i] for i in range(self.inputs)]
            for i, result in enumerate(
                self.f.results(struct, count, "body", *arguments), self.inputs
            ):
                pointer = positions[i]
                assert isinstance(pointer, Pointer)
                pointer.store(result)

    def position(self, i: int, row: Position, stride: IntLike, k: Int) -> Position:
        """Return the position of element ``k`` of a row, which is an address or an iota number."""
        step = self.steps[i]
        if self.variant.apart and self.variant.apart[i]:
            stride = self.variant.apart[i]
        if isinstance(row, Int):
            return row + (k if step is InnerStride.PACKED else k * stride)
        return row.element(self.types[i], k) if step is InnerStride.PACKED else row.at(k * stride)

    def read(self, i: int, position: Position) -> Any:
        """Return the element at ``position``, or the iota number that ``position`` is."""
        return position.load(self.types[i]) if isinstance(position, Pointer) else position
