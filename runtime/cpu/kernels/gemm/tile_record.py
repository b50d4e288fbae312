"""Argument record of products on the tile unit: addresses, sizes and strides in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileWords:
    """result[m, n] = lhs[m, k] rhs[k, n], or added to it: addresses, sizes, and steps in bytes.

    A line is a row of lhs, or a column of rhs; of each operand the step from line to line or that along the depth is
    one element. Rows of the result lie without gaps.
    """

    lhs: int
    rhs: int
    result: int
    m: int
    n: int
    k: int
    lhs_line: int
    lhs_depth: int
    rhs_line: int
    rhs_depth: int
    result_row: int
    add: bool = False

    def packed(self) -> list[int]:
        return [
            *(self.lhs, self.rhs, self.result, self.m, self.n, self.k),
            *(self.lhs_line, self.lhs_depth, self.rhs_line, self.rhs_depth),
            *(self.result_row, int(self.add)),
        ]


#: Words of a record.
WORD_COUNT = 12
_POINTERS = ("lhs", "rhs", "out")
_SIZES = ("m", "n", "k")
_STEPS = ("lhs_line", "lhs_depth", "rhs_line", "rhs_depth", "out_row")
_NAMES = (*_POINTERS, *_SIZES, *_STEPS, "adds")


def record_ir(names: tuple[str, ...] = _NAMES) -> str:
    """Lines that read these words of %record: %lhs, %rhs and %out as pointers."""
    return "\n".join(
        f"  %{name} = call {'ptr @pointer' if name in _POINTERS else 'i64 @word'}(ptr %record, i64 {w})"
        for w, name in enumerate(_NAMES)
        if name in names
    )


def instead_ir(body: str) -> str:
    """``@instead(record, i, j, d, rows, columns, depth, add)``: computes a block in which numbers are too large.

    It begins at line %i of lhs, line %j of rhs and %d of the depth. body: lines that find all but the sizes as
    ``record_ir`` names them.
    """
    return _INSTEAD.format(record=record_ir((*_POINTERS, *_STEPS)), body=body)


_INSTEAD = """
define internal void @instead(ptr %record, i64 %i, i64 %j, i64 %d, i64 %rows, i64 %columns, i64 %depth, i1 %add)
    noinline {{
entry:
{record}
{body}}}
"""
