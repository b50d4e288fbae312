"""Argument record of products on the tile unit: addresses, sizes and strides in bytes."""

from __future__ import annotations

from runtime.codegen.ir.record_loads import read
from runtime.codegen.record import Address, Record, Word, field_names, record, word_count


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


#: Size of a record in words.
WORD_COUNT = word_count(TileRecord)


def record_ir() -> str:
    """Return lines that load all fields of %record into registers of their names."""
    return read(TileRecord, *field_names(TileRecord))


_SIZES = ("m", "n", "k", "adds")


def instead_ir(body: str) -> str:
    """Return ``@instead(record, i, j, d, rows, columns, depth, add)``, which computes a block with too large numbers.

    The block begins at line %i of lhs, line %j of rhs and %d of the depth. body: lines that use the fields, without the
    sizes, by the names of ``record_ir``.
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
