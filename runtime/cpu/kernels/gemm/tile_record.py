"""Argument record of products on the tile unit: addresses, sizes and strides in bytes."""

from __future__ import annotations

from runtime.codegen.ir.record import Address, Record, Word, field_names, record, word_count
from runtime.codegen.ir.record_loads import read


@record
class TileRecord(Record):
    """out[m, n] = lhs[m, k] rhs[k, n], or, if it ``adds``, added to it: addresses, sizes, and steps in bytes.

    A line is a row of lhs, or a column of rhs; of each operand the step from line to line or that along the depth is
    one element. Rows of the result lie without gaps.
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


#: Words of a record.
WORD_COUNT = word_count(TileRecord)


def record_ir() -> str:
    """Lines that read all words of %record, by their names."""
    return read(TileRecord, *field_names(TileRecord))


_SIZES = ("m", "n", "k", "adds")


def instead_ir(body: str) -> str:
    """``@instead(record, i, j, d, rows, columns, depth, add)``: computes a block in which numbers are too large.

    It begins at line %i of lhs, line %j of rhs and %d of the depth. body: lines that find all but the sizes as
    ``record_ir`` names them.
    """
    return _INSTEAD.format(
        record=read(TileRecord, *(name for name in field_names(TileRecord) if name not in _SIZES)),
        body=body,
    )


_INSTEAD = """
define internal void @instead(ptr %record, i64 %i, i64 %j, i64 %d, i64 %rows, i64 %columns, i64 %depth, i1 %add)
    noinline {{
entry:
{record}
{body}}}
"""
