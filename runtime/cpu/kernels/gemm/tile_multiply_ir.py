"""LLVM IR of the innermost loop on the tile unit: the product of two packed panels."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.gemm.tile_types import (
    BLOCK_ROW,
    LINES,
    ROW_BYTES,
    SUMS_ROW,
    TILE_BYTES,
    TileTypes,
)


def add_multiply(module: Module, types: TileTypes) -> None:
    """Add ``multiply{rows}{columns}``, for one or two tiles each, which multiplies two panels over some steps.

    Each step also finishes some rows of the previous sums, at ``total`` (tile_store_ir.py), which overlaps with the
    unit's work. After all steps these instructions would be out of reach of out-of-order execution. The function
    ``store``, which is added as well, then stores the new sums, which are in the unit's registers.
    """
    for rows in (1, 2):
        for columns in (1, 2):
            _add_multiply(module, types, rows, columns)
    f = internal_function(module, "store", "ptr")
    (total,) = f.parameters
    for tile in range(4):  # used or not
        r, c = divmod(tile, 2)
        address = total.at(r * LINES * BLOCK_ROW + c * ROW_BYTES)
        f.add(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 {BLOCK_ROW})")
    f.finish()


def _add_multiply(module: Module, types: TileTypes, rows: int, columns: int) -> None:
    """Add ``multiply{rows}{columns}``(lhs, rhs, steps, total, to, row, finished, width, add, scale).

    The last seven arguments are those of ``finish`` for the previous sums, of which there are ``finished`` rows.
    """
    name = f"multiply{rows}{columns}"
    kinds = ("ptr", "ptr", "i64", "ptr", "ptr", "i64", "i64", "i64", "i1", "float")
    f = internal_function(module, name, *kinds)
    lhs, rhs, steps, total, to, row, finished, width, add, scale = f.parameters
    for tile in [2 * r + c for r in range(rows) for c in range(columns)]:
        f.add(f"call void @llvm.x86.tilezero(i8 {tile})")
    share = (finished + (steps - 1)) // steps
    with f.loop(steps) as s:
        panels = lhs.at(s * types.step_bytes), rhs.at(s * types.rhs_step_bytes)
        _multiply_step(f, types, panels, (rows, columns))
        r = s * share
        left = finished - r
        with f.when(left > 0):
            block = total.element(SUMS_ROW, r), to.at(r * row)
            f.call("void", "finish", *block, row, left.umin(share), width, add, scale)
    f.finish()


def _multiply_step(
    f: FunctionWriter,
    types: TileTypes,
    panels: tuple[Pointer, Pointer],
    halves: tuple[int, int],
) -> None:
    """Write the products of parts of one step, of ``halves`` tiles of lhs and of rhs.

    An operand is loaded unless the previous product has used the same one. Tiles 0 to 3 hold sums, 4 and 5 operands of
    lhs, and 6 and 7 operands of rhs.
    """
    loaded: tuple[int | None, int | None] = (None, None)
    for product in types.products:
        for side, panel in enumerate(panels):
            for half in range(halves[side] if loaded[side] != product[side] else 0):
                tile, address = (
                    4 + 2 * side + half,
                    panel.at((2 * product[side] + half) * TILE_BYTES),
                )
                f.add(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {ROW_BYTES})")
        loaded = product
        for r in range(halves[0]):
            for c in range(halves[1]):
                operands = f"i8 {2 * r + c}, i8 {4 + r}, i8 {6 + c}"
                f.add(f"call void @llvm.x86.{types.instruction}({operands})")


def call_multiply(f: FunctionWriter, sizes: tuple[Int, Int], *arguments: Value) -> None:
    """Call the function ``multiply..`` for panels with ``sizes``, the used rows and columns (at most 32 each)."""
    two_rows, two_columns = (size.compared("ugt", LINES) for size in sizes)
    with f.when(two_rows) as by_rows:
        for r in (2, 1):
            with f.when(two_columns) as by_columns:
                f.call("void", f"multiply{r}2", *arguments)
                by_columns.otherwise()
                f.call("void", f"multiply{r}1", *arguments)
            if r == 2:
                by_rows.otherwise()
