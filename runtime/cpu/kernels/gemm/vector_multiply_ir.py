"""LLVM IR of the innermost loop without a tile unit: the product of two packed panels in vector registers.

Panels have the tile unit's layout (tile_types.py), which suits the vector instructions for pairs of bf16 and groups of
four bytes as well: a word of a row of lhs, broadcast to all lanes, is multiplied by a vector of words of rhs. A block
of 8 rows and 32 columns is summed in 16 registers, which is enough to hide an instruction's latency.

The instruction for bytes multiplies unsigned by signed bytes. If both operands have one type, lhs is offset by 128 (by
an exclusive or), and the sums of each column start with the correction of that offset.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Bool, Value
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Vector, cast, splat, zeros
from runtime.cpu.kernels.gemm.tile_types import BLOCK_ROW, FLOATS, INTS, LINES, TileTypes

#: Number of rows of a block that is summed in registers.
ROWS = 8
_WORD = 4
#: Bytes of a row of words of a panel, and of 16 columns of words of a panel.
_ROW = LINES * _WORD
_HALF = LINES * _ROW
#: 128 in each byte, which flips the sign bits.
_FLIPPED_SIGNS = -0x7F7F7F80


def add_multiply(module: Module, types: TileTypes) -> None:
    """Add ``multiply``(lhs, rhs, steps, rows, columns, total), which stores the product of two panels at ``total``.

    The panels have at most 32 rows and 32 columns, of which those given are computed, rounded up to 8 rows and 16
    columns.
    """
    name, sums, elements = _element_vectors(types)
    # The declaration tells LLVM that the types are those of earlier versions of the intrinsic.
    module.declare(f"declare {sums} @{name}({sums}, {elements}, {elements})")
    heights = (ROWS, 0) if _is_corrected(types) else (ROWS,)
    for rows in heights:
        for columns in (1, 2):
            _add_sum_rows(module, types, rows, columns)
    f = internal_function(module, "multiply", "ptr", "ptr", "i64", "i64", "i64", "ptr")
    lhs, rhs, steps, row_count, columns, total = f.parameters
    first, depth = f.array(BLOCK_ROW, "i8"), steps * LINES
    two = columns.compared("ugt", LINES)
    if 0 in heights:
        _call_sum_rows(f, two, 0, lhs, rhs, depth, first, first)
    with f.loop(row_count, step=ROWS) as r:
        pointers = lhs.at(r * _ROW), total.at(r * BLOCK_ROW)
        _call_sum_rows(f, two, ROWS, pointers[0], rhs, depth, first, pointers[1])
    f.finish()


def _call_sum_rows(f: FunctionWriter, two: Bool, rows: int, *arguments: Value) -> None:
    """Call the function that sums ``rows`` rows by 32 columns if ``two``, else by 16 columns."""
    with f.when(two) as by_two:
        f.call("void", f"rows{rows}by2", *arguments)
        by_two.otherwise()
        f.call("void", f"rows{rows}by1", *arguments)


def _is_corrected(types: TileTypes) -> bool:
    """Return whether lhs is offset by 128, because both operands are signed or both are unsigned bytes."""
    return not types.is_float and types.lhs is types.rhs


def _element_vectors(types: TileTypes) -> tuple[str, str, str]:
    """Return LLVM's name of the instruction, and its types of sums and of operands.

    Operands of bytes are words, as before LLVM 22.
    """
    if types.is_float:
        return "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, f"<{2 * LINES} x bfloat>"
    return "llvm.x86.avx512.vpdpbusd.512", INTS, INTS


def _product(
    f: FunctionWriter, types: TileTypes, total: Vector, lhs: Vector, rhs: Vector
) -> Vector:
    """Return the sums ``total`` plus the products of the words ``lhs`` and ``rhs``, lane by lane."""
    name, sums, elements = _element_vectors(types)
    lhs_has_sign = not types.is_float and not types.rhs.is_signed_integer
    operands = (rhs, lhs) if lhs_has_sign else (lhs, rhs)
    summed: Vector = f.call(sums, name, total, *(cast(x, "bitcast", elements) for x in operands))
    return summed


def _add_sum_rows(module: Module, types: TileTypes, rows: int, columns: int) -> None:
    """Add ``rows{rows}by{columns}``(lhs, rhs, depth, first, total), for ``columns`` times 16 columns.

    ``depth`` is in words. ``first`` is the address of the corrections with which the sums of each column start, if lhs
    is offset. With 0 rows the function computes these corrections: the negative products of rhs with a row of bytes
    0x80.
    """
    f = internal_function(module, f"rows{rows}by{columns}", "ptr", "ptr", "i64", "ptr", "ptr")
    lhs, rhs, depth, first, total = f.parameters
    sums, flips = _element_vectors(types)[1], _is_corrected(types)
    starts = [
        first.at(c * _ROW).load(sums, align=64) if flips and rows else zeros(f, sums)
        for c in range(columns)
    ]
    with f.repeat(0, *starts * max(rows, 1)) as each:
        w, *before = each.values
        step, within = (w // LINES) * types.step_bytes, w & (LINES - 1)
        lhs_w, rhs_w = lhs.at(step).at(within * _WORD), rhs.at(step).at(within * _ROW)
        right = [rhs_w.at(c * _HALF).load(INTS, align=64) for c in range(columns)]
        after = []
        for r in range(max(rows, 1)):
            left = Vector(f, INTS, f"splat (i32 {_FLIPPED_SIGNS})")
            if rows:
                word = splat(lhs_w.at(r * _ROW).load("i32", align=4), LINES)
                left = word.combined("xor", left) if flips else word
            totals = before[r * columns : (r + 1) * columns]
            after += [
                _product(f, types, *pair[:1], left, pair[1])
                for pair in zip(totals, right, strict=True)
            ]
        each.again(w + 1, *after, when=(w + 1).ult(depth))
    for n, x in enumerate(after):
        r, c = divmod(n, columns)
        result = x if rows else zeros(f, sums).combined("sub", x)
        total.at(r * BLOCK_ROW + c * _ROW).store(result, align=64)
    f.finish()
