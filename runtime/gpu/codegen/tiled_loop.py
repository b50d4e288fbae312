"""Loops over arrays that are contiguous along different dimensions: blocks transpose tiles in shared memory.

An array is crossed if it is contiguous along the rows of the loop's last two dimensions instead of the columns. A block
has 8 rows of 32 threads. Lanes access every array along its contiguous dimension, so that they use entire memory
sectors. In shared memory the rows of a tile begin in different banks, so that accesses across rows have no conflicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from runtime.gpu.codegen.array_access import address_at, computed, index_type, moved
from runtime.gpu.codegen.launch import WARP, GpuTarget, KernelSource
from runtime.gpu.codegen.loop_nest import Nest, Spans, body, nest_functions
from runtime.gpu.codegen.thread_writer import ThreadWriter

#: Rows of threads of a block.
ROWS = 8
THREADS = WARP * ROWS
#: Rows and columns of a tile, and of a small tile, which is used if large ones would leave too few blocks or need too
#: much shared memory. Measured on an H200 with f32[16384,16384]: 0.53 ms in tiles of 64, 0.56 ms in tiles of 32; with a
#: grid-stride loop 0.59 and 0.60 ms.
TILE, SMALL_TILE = 64, 32
#: Largest buffers of large tiles in bytes. A multiprocessor holds six blocks with such buffers.
MOST_BUFFERS = 36 << 10
#: Fewest blocks per multiprocessor with large tiles.
LEAST_BLOCKS = 4
BANK = 4


def tiled_source(nest: Nest, target: GpuTarget) -> KernelSource | None:
    """Return the launch of ``nest`` with transposed tiles.

    Returns None if no array is crossed (``Nest.crossed``), or if the tiles do not fit in shared memory.
    """
    crossed = nest.crossed
    if not any(crossed):
        return None
    tiles = _Tiles(nest, crossed, target)
    return tiles.source() if tiles.writer.shared_bytes <= target.shared_bytes else None


class _Tiles:
    def __init__(self, nest: Nest, crossed: Sequence[bool], target: GpuTarget) -> None:
        self.nest = nest
        self.crossed = [i for i, crosses in enumerate(crossed) if crosses]
        items = [nest.accesses[i].item for i in self.crossed]
        *self.outer, self.rows, self.columns = nest.sizes
        large = math.prod(nest.sizes) // TILE**2 >= LEAST_BLOCKS * target.multiprocessors
        fits = TILE * TILE * sum(items) <= MOST_BUFFERS
        self.tile = TILE if large and fits else SMALL_TILE
        self.pieces = [-(-size // self.tile) for size in (self.rows, self.columns)]
        self.count = math.prod([*self.outer, *self.pieces])
        self.writer = ThreadWriter(index=index_type(nest.sizes, nest.accesses, nest.strides))
        self.buffers, self.pitches = {}, {}
        for i, item in zip(self.crossed, items, strict=True):
            # The distance of rows is an odd number of banks.
            pitch = self.tile + max(1, BANK // item)
            self.pitches[i] = pitch
            self.buffers[i] = self.writer.shared(self.tile * pitch * item)

    def source(self) -> KernelSource:
        writer, nest = self.writer, self.nest
        t, value = writer.index, writer.value
        starts = computed(writer, nest.stages, nest.operands)
        bases = moved(writer, nest.accesses, starts)
        spans = Spans(writer, nest, starts)
        block, thread = writer.to_index(writer.block_number()), writer.thread()
        self.lane = value(f"and i32 {thread}, {WARP - 1}")
        self.row = value(f"lshr i32 {thread}, 5")
        *outer, row_tile, column = writer.delinearize(block, [*self.outer, *self.pieces])
        first = [value(f"mul nuw nsw {t} {x}, {self.tile}") for x in (row_tile, column)]
        for i in self.crossed:
            if i < nest.inputs:
                self.turn(i, outer, first, bases[i], spans, into=True)
        writer.barrier()
        self.compute(outer, first, bases, spans)
        if self.crossed[-1] >= nest.inputs:
            writer.barrier()
        for i in self.crossed:
            if i >= nest.inputs:
                self.turn(i, outer, first, bases[i], spans, into=False)
        return writer.source("spmd_tiles", nest_functions(nest), self.count, THREADS)

    def parts(self) -> list[tuple[int, int]]:
        """Return the elements of a tile that a thread processes, as (offset from its lane, offset from its row)."""
        return [
            (along, across)
            for across in range(0, self.tile, ROWS)
            for along in range(0, self.tile, WARP)
        ]

    def turn(
        self,
        i: int,
        outer: Sequence[str],
        first: Sequence[str],
        base: str,
        spans: Spans,
        *,
        into: bool,
    ) -> None:
        """Emit the copy of a tile of the crossed array ``i`` into its buffer, or, unless ``into``, out of the buffer.

        Lanes access the array along its contiguous dimension, the rows of the loop.
        """
        writer, access = self.writer, self.nest.accesses[i]
        for along, across in self.parts():
            row, column = self.inside(self.lane, along), self.inside(self.row, across)
            with self.where(outer, first, row, column, spans) as indices:
                way = writer.way(indices, self.nest.strides[i])
                address = address_at(writer, access, base, way)
                number = self.buffer_index(i, row, column)
                if into:
                    x = writer.value(f"load {access.stored}, ptr {address}, align {access.item}")
                    writer.store_shared(access.stored, x, self.buffers[i], access.item, number)
                else:
                    x = writer.load_shared(access.stored, self.buffers[i], access.item, number)
                    writer.add(f"store {access.stored} {x}, ptr {address}, align {access.item}")

    def compute(
        self, outer: Sequence[str], first: Sequence[str], bases: Sequence[str], spans: Spans
    ) -> None:
        """Emit the program for a tile. Lanes divide the columns; crossed arrays are accessed in their buffers."""
        for along, across in self.parts():
            row, column = self.inside(self.row, across), self.inside(self.lane, along)
            with self.where(outer, first, row, column, spans) as indices:
                self.element(indices, row, column, bases)

    def element(self, indices: list[str], row: str, column: str, bases: Sequence[str]) -> None:
        writer, nest = self.writer, self.nest
        addresses = [
            ""
            if i in self.buffers
            else address_at(writer, access, bases[i], writer.way(indices, nest.strides[i]))
            for i, access in enumerate(nest.accesses)
        ]
        elements = []
        for i in range(nest.inputs):
            access = nest.accesses[i]
            if i in self.buffers:
                number = self.buffer_index(i, row, column)
                x = writer.load_shared(access.stored, self.buffers[i], access.item, number)
            elif access.counts:
                x = addresses[i]
            else:
                x = writer.value(f"load {access.stored}, ptr {addresses[i]}, align {access.item}")
            elements.append(x)
        for i, x in enumerate(body(writer, nest, elements), nest.inputs):
            access = nest.accesses[i]
            if i in self.buffers:
                number = self.buffer_index(i, row, column)
                writer.store_shared(access.stored, x, self.buffers[i], access.item, number)
            else:
                writer.add(f"store {access.stored} {x}, ptr {addresses[i]}, align {access.item}")

    def inside(self, x: str, more: int) -> str:
        """Emit ``x`` + ``more``, a row or column of the tile (i32)."""
        return x if more == 0 else self.writer.value(f"add nuw nsw i32 {x}, {more}")

    def buffer_index(self, i: int, row: str, column: str) -> str:
        """Emit the index of an element in the buffer of array ``i``, whose rows are the columns of the tile."""
        before = self.writer.value(f"mul nuw nsw i32 {column}, {self.pitches[i]}")
        return self.writer.value(f"add nuw nsw i32 {before}, {row}")

    def where(
        self, outer: Sequence[str], first: Sequence[str], row: str, column: str, spans: Spans
    ) -> _Where:
        return _Where(self, outer, first, (row, column), spans)


class _Where(ExitStack):
    """Context whose code runs only for elements of the tile that are in bounds. Entering it returns their indices."""

    def __init__(
        self,
        tiles: _Tiles,
        outer: Sequence[str],
        first: Sequence[str],
        inside: Sequence[str],
        spans: Spans,
    ) -> None:
        super().__init__()
        self.tiles, self.outer, self.first = tiles, outer, first
        self.own, self.spans = inside, spans

    def __enter__(self) -> list[str]:  # type: ignore[override]
        super().__enter__()
        writer, t = self.tiles.writer, self.tiles.writer.index
        indices, condition = list(self.outer), None
        for begin, own, size in zip(
            self.first, self.own, (self.tiles.rows, self.tiles.columns), strict=True
        ):
            index = writer.value(f"add nuw nsw {t} {begin}, {writer.to_index(own)}")
            indices.append(index)
            if size % self.tiles.tile:
                below = writer.value(f"icmp ult {t} {index}, {size}")
                condition = writer.value(f"and i1 {condition}, {below}") if condition else below
        in_spans = self.spans.holds(indices)
        if in_spans is not None:
            condition = writer.value(f"and i1 {condition}, {in_spans}") if condition else in_spans
        if condition is not None:
            self.enter_context(writer.when(condition))
        return indices
