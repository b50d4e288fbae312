"""Argument record of products on the tile unit: addresses, sizes and strides in bytes."""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.record import Address, Record, Word, record


@record
class TileRecord(Record):
    """out[m, n] = lhs[m, k] rhs[k, n], or += if ``adds``: addresses, sizes, and strides in bytes.

    A line is a row of lhs, or a column of rhs; each operand is contiguous across lines or along the depth. Rows of the
    result are contiguous.
    """

    lhs: Address
    rhs: Address
    out: Address
    m: Word
    n: Word
    k: Word
    lhs_line: Word
    lhs_depth: Word
    rhs_line: Word
    rhs_depth: Word
    out_row: Word
    adds: Word


def instead_function(module: Module) -> FunctionWriter:
    """Return the writer of ``instead``(record, i, j, d, rows, columns, depth, add).

    It computes a block with numbers that are too large, from line i of lhs, line j of rhs and d of the depth on.
    """
    return internal_function(module, "instead", *["i64"] * 6, "i1", record=TileRecord)
