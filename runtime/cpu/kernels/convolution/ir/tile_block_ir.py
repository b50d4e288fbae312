"""LLVM IR of ``product``, which computes a block of at most 32 by 32 sums of a convolution on the tile unit.

Tables give the offsets of the operands' tiles (see tile_pieces_ir). The sums of a block are stored while the next block
is computed (see tile_store_ir).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, PARTS
from runtime.cpu.kernels.convolution.ir.tile_store_ir import (
    PendingRecord,
    add_store,
    fetch,
    pend,
)
from runtime.cpu.kernels.gemm.tile_multiply_ir import call_multiply
from runtime.cpu.kernels.gemm.tile_pack_ir import add_turn
from runtime.cpu.kernels.gemm.tile_types import CONFIG_IR, FLOATS, LINES, PANEL, ROW, TILE_BYTES

#: Types of an operand's parameters: its address, the strides of rows, tiles and parts in bytes, and the table of steps.
_OPERAND = ("ptr", "i64", "i64", "i64", "ptr")


def product_module(*, transposed: bool) -> Module:
    """Return a module with ``product``. ``finish`` (tile_store_ir) must be called after the last product.

    If ``transposed``, the rows of the result are the columns of the products.
    """
    module = Module(CONFIG_IR)
    add_turn(module)
    add_store(module)
    for rows in (1, 2):
        for columns in (1, 2):
            _add_multiply(module, rows, columns, transposed=transposed)
    _add_product(module, transposed=transposed)
    return module


def _add_multiply(module: Module, rows: int, columns: int, *, transposed: bool) -> None:
    """Add ``multiply{rows}{columns}``, which sums ``steps`` products of that many tiles in ``total``.

    The operands' tables give the offset of each step. Between steps it stores the previous sums of ``total``. If there
    are fewer than four tiles, each tile uses several registers in turn, so that the unit does not wait for the previous
    product.
    """
    name = f"multiply{rows}{columns}"
    f = internal_function(module, name, *_OPERAND, *_OPERAND, "i64", "ptr", "ptr")
    *operands, steps, total, pending = f.parameters
    unstored = f.view(PendingRecord, pending).rows
    share = (unstored + (steps - 1)) // steps
    for tile in range(4):
        f.add(f"call void @llvm.x86.tilezero(i8 {tile})")
    with f.loop(steps) as s:
        left = _LoadedParts(f, operands[:5], s, (4, rows))
        right = _LoadedParts(f, operands[5:], s, (6, columns))
        _multiply_parts(f, left, right, rows, columns)
        r = s * share
        rows_left = unstored - r
        with f.when(rows_left > 0):
            f.call("void", "finish_rows", total, pending, r, rows_left.umin(share))
    tiles = [total.at(_sums_offset(tile, transposed=transposed)) for tile in range(4)]
    for tile, address in enumerate(tiles):
        f.add(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 64)")
    own = [_registers(rows, columns, r, c) for r in range(rows) for c in range(columns)]
    for first, *others in own:
        for other in others:
            _add_tile(f, tiles[first], tiles[other])
    for first, *_ in own if transposed else ():
        f.call("void", "turn", tiles[first])
    f.finish()


def _sums_offset(tile: int, *, transposed: bool) -> int:
    """Return the byte offset in ``total`` of the sums in register ``tile`` (0 to 3)."""
    row, column = divmod(tile, 2)
    return (2 * column + row if transposed else tile) * TILE_BYTES


def _registers(rows: int, columns: int, r: int, c: int) -> list[int]:
    """Return the registers that hold the sums of tile (r, c): register 2 r + c, and those that no other tile needs."""
    return [2 * i + j for i in range(r, 2, rows) for j in range(c, 2, columns)]


class _LoadedParts:
    """Parts of an operand in its two registers: both tiles of one part, or one tile of two parts.

    ``operand`` has the values of _OPERAND, ``step`` is the number of the step, and ``registers`` are the first register
    and the number of tiles.
    """

    def __init__(
        self, f: FunctionWriter, operand: Sequence[Any], step: Int, registers: tuple[int, int]
    ) -> None:
        base, self._row, tile, part, steps = operand
        self._f = f
        self._first, tiles = registers
        self._room = 2 // tiles
        self._parts: list[int] = []
        self._loads = 0
        address = base.at(steps.word(step))
        self._addresses: list[list[Pointer]] = []
        for number in range(PARTS):
            address = address.at(part) if number else address
            self._addresses.append([address, address.at(tile)][:tiles])

    def load(self, part: int) -> None:
        """Load ``part``, unless it is loaded, in place of the part that was loaded first."""
        if part in self._parts:
            return
        if len(self._parts) < self._room:
            self._parts.append(part)
        else:
            self._parts[self._loads % self._room] = part
        self._loads += 1
        for i, address in enumerate(self._addresses[part]):
            given = f"i8 {self.register(part, i)}, ptr {address}, i64 {self._row}"
            self._f.add(f"call void @llvm.x86.tileloadd64({given})")

    def register(self, part: int, tile: int) -> int:
        """Return the register that holds ``tile`` of the loaded ``part``."""
        return self._first + self._parts.index(part) + tile


def _multiply_parts(
    f: FunctionWriter, left: _LoadedParts, right: _LoadedParts, rows: int, columns: int
) -> None:
    """Write the products of one step, of ``rows`` tiles by ``columns`` tiles.

    An operand of one tile has two registers for its parts, so that each of its parts is loaded once.
    """
    order = F32_TYPES.products
    if columns == 1:
        order = tuple(sorted(order, key=lambda pair: (pair[0], -pair[1])))
    elif rows == 1:
        order = tuple(sorted(order, key=lambda pair: (pair[1], -pair[0])))
    for number, (a_part, b_part) in enumerate(order):
        left.load(a_part)
        right.load(b_part)
        for r in range(rows):
            for c in range(columns):
                turns = _registers(rows, columns, r, c)
                total = turns[number % len(turns)]
                operands = f"i8 {left.register(a_part, r)}, i8 {right.register(b_part, c)}"
                f.add(f"call void @llvm.x86.{F32_TYPES.instruction}(i8 {total}, {operands})")


def _add_tile(f: FunctionWriter, to: Pointer, source: Pointer) -> None:
    """Add the stored sums of the tile at ``source`` to those at ``to``."""
    with f.loop(LINES) as r:
        target = to.element(ROW, r)
        x, y = (row.load(FLOATS, align=64) for row in (target, source.element(ROW, r)))
        target.store(x.combined("fadd", y), align=64)


def _add_product(module: Module, *, transposed: bool) -> None:
    """Add ``product``(left operand, right operand, steps, total, pending, out, offsets, rows, columns, adds).

    It computes a block, and leaves it in ``total`` as the pending one. ``rows`` and ``columns`` are those of the
    products that remain, of which at most 32 are computed. A block without steps is set to zero, or left as it is if
    ``adds``.
    """
    kinds = (*_OPERAND, *_OPERAND, "i64", "ptr", "ptr", "ptr", "ptr", "i64", "i64", "i1")
    f = internal_function(module, "product", *kinds)
    *given, out, offsets, rows, columns, adds = f.parameters
    *_, steps, _, pending = given
    is_dense, is_any = f.view(PendingRecord, pending).dense.differs(0), steps.differs(0)
    sizes = [size.umin(PANEL) for size in ((columns, rows) if transposed else (rows, columns))]
    with f.when(is_any | ~adds):
        with f.when(is_dense):
            fetch(f, out, offsets, *sizes)
        with f.when(is_any) as some:
            call_multiply(f, (rows, columns), *given)
            added = adds.resized("i64")
            block = {"out": out, "offsets": offsets, "rows": sizes[0], "columns": sizes[1]}
            pend(pending, **block, adds=added)
            some.otherwise()
            f.call("void", "clear", pending, out, offsets, *sizes)
    f.finish()
