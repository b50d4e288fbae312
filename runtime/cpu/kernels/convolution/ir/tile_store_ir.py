"""LLVM IR that unscales a block of a convolution's sums and stores its rows at offsets from a table.

When the products of a block are done, its sums are in ``total``, four tiles. They are stored between the steps of the
next block, which overlaps with the unit's work. ``pending`` is the record of the block that has not been stored yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, selected, zeros
from runtime.codegen.ir.vectors import addresses, gathered, masked_store, prefetch, scatter
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import MASK, lanes, loaded
from runtime.cpu.kernels.gemm.tile_block_ir import UNSCALE
from runtime.cpu.kernels.gemm.tile_types import BLOCK_BYTES, FLOATS, LINES, ROW, TILE_BYTES
from runtime.program.argument_record import Address, Record, Word, record, word_count, word_index


@record
class PendingRecord(Record):
    """Block of ``rows`` by ``columns`` sums in ``total`` that has yet to be stored at ``out``.

    ``offsets`` gives the offset of each row in bytes, or -1 if it is not stored, and ``lane_offsets`` those of the
    columns in a row; ``dense`` tells that columns are contiguous. If ``adds``, the sums are added to the result.
    """

    out: Address
    offsets: Address
    lane_offsets: Address
    dense: Word
    rows: Word
    columns: Word
    adds: Word


def begin(f: FunctionWriter) -> tuple[Pointer, Pointer]:
    """Return ``total``, and a ``pending`` without a block, for the convolution of the writer's record."""
    size = 8 * word_count(PendingRecord)
    total, pending = f.array(BLOCK_BYTES, "i8"), f.array(size, "i8")
    f.memset(pending, size)
    pend(pending, dense=f.record.dense, lane_offsets=f.record.lane_offsets)
    return total, pending


def pend(pending: Pointer, **values: Value | int) -> None:
    """Set the fields ``values`` of ``pending``."""
    for name, value in values.items():
        pending.element("i64", word_index(PendingRecord, name)).store(value)


@contextmanager
def _each_row(
    f: FunctionWriter, out: Pointer, offsets: Pointer, count: Int
) -> Iterator[tuple[Int, Pointer]]:
    """Repeat for each row that is stored. Yields its number and its address."""
    with f.loop(count) as r:
        offset = offsets.word(r)
        with f.when(offset >= 0):
            yield r, out.at(offset)


def _columns_apart(to: Pointer, lane_offsets: Pointer, half: int) -> Vector:
    """Return the addresses of 16 columns of the row at ``to``, the first or the second ``half`` of 32."""
    return addresses(to, lane_offsets.element("<16 x i64>", half).load("<16 x i64>", align=8))


def add_store(module: Module) -> None:
    """Add the functions ``finish_rows`` and ``clear``."""
    _add_finish_rows(module)
    _add_clear(module)


def _add_finish_rows(module: Module) -> None:
    """Add ``finish_rows``(total, pending, first, count), which stores rows of the block from ``first`` on."""
    f = internal_function(module, "finish_rows", "ptr", "ptr", "i64", "i64")
    total, pending, first, count = f.parameters
    block = f.view(PendingRecord, pending)
    out, offsets, lane_offsets = block.out, block.offsets.element("i64", first), block.lane_offsets
    columns, is_dense, is_adding = block.columns, block.dense.differs(0), block.adds.differs(0)
    masks = [lanes(columns - n) for n in (0, LINES)]
    old = [selected(is_adding, mask, zeros(f, MASK)) for mask in masks]

    def add_apart(to: Pointer, half: int) -> None:
        columns_at = _columns_apart(to, lane_offsets, half)
        before = gathered(columns_at, FLOATS, old[half], 4)
        scatter(columns_at, sums[half].combined("fadd", before), masks[half], 4)

    with _each_row(f, out, offsets, count) as (r, to):
        row = r + first
        start = total.at((row >> 4) * (2 * TILE_BYTES)).element(ROW, row & 15)
        sums = [
            start.at(n * TILE_BYTES).load(FLOATS, align=64).combined("fmul", UNSCALE)
            for n in (0, 1)
        ]
        with f.when(is_dense) as dense:
            targets = to, to.at(64)
            with f.when(is_adding) as adding:
                before = [loaded(at, mask) for at, mask in zip(targets, masks, strict=True)]
                more = [x.combined("fadd", y) for x, y in zip(sums, before, strict=True)]
            stored = [adding.merged(x, y) for x, y in zip(more, sums, strict=True)]
            for target, x, mask in zip(targets, stored, masks, strict=True):
                masked_store(target, x, mask, 4)
            dense.otherwise()
            add_apart(to, 0)
            with f.when(columns.compared("ugt", LINES)):
                add_apart(to, 1)
    f.finish()


def finish(f: FunctionWriter, total: Pointer, pending: Pointer) -> None:
    """Write the code that stores the last pending block, if there is one."""
    rows = f.view(PendingRecord, pending).rows
    with f.unless_zero(rows):
        f.call("void", "finish_rows", total, pending, 0, rows)
        pend(pending, rows=0)


def _add_clear(module: Module) -> None:
    """Add ``clear``(pending, out, offsets, rows, columns), which stores zeros for a block without products."""
    f = internal_function(module, "clear", "ptr", "ptr", "ptr", "i64", "i64")
    pending, out, offsets, rows, columns = f.parameters
    block = f.view(PendingRecord, pending)
    lane_offsets, is_dense, none = block.lane_offsets, block.dense.differs(0), zeros(f, FLOATS)
    masks = [lanes(columns - n) for n in (0, LINES)]
    with _each_row(f, out, offsets, rows) as (_, to), f.when(is_dense) as dense:
        masked_store(to, none, masks[0], 4)
        masked_store(to.at(64), none, masks[1], 4)
        dense.otherwise()
        scatter(_columns_apart(to, lane_offsets, 0), none, masks[0], 4)
        with f.when(columns.compared("ugt", LINES)):
            scatter(_columns_apart(to, lane_offsets, 1), none, masks[1], 4)
    f.finish()


def fetch(f: FunctionWriter, out: Pointer, offsets: Pointer, rows: Int, columns: Int) -> None:
    """Prefetch the result's cache lines of a block to the second-level cache, while its products are computed."""
    last = (columns << 2) - 4
    with _each_row(f, out, offsets, rows) as (_, to):
        prefetch(to, 2)
        prefetch(to.at(last), 2)
