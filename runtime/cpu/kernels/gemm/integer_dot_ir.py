"""Native code of products of integer matrices modulo the range of the result.

It serves integers whose sums no float type represents exactly.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import IntLike
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.row_sums_ir import RowSums, write_row_sums
from runtime.program.argument_record import Address, Record, Word, record
from spmd.shape import PrimitiveType

FUNCTION = "spmd_integer_dot"


class IntegerDotAlgorithm(Enum):
    """Algorithm of an integer product, named by the contiguous runs that its innermost loop reads."""

    ROWS = "rows"
    """Accumulate rows of rhs, each times an element of lhs, to a row of the result.

    Rows of rhs and of the result must be contiguous.
    """
    DEPTH = "depth"
    """Compute each element of the result as the inner product of a row of lhs and a column of rhs.

    Rows of lhs and columns of rhs must be contiguous.
    """
    ANY = "any"
    """Compute inner products as DEPTH does. The matrices may have any strides."""


@record
class IntegerDotRecord(Record):
    """Record of result[m, n] = lhs[m, k] rhs[k, n]: addresses, sizes, and strides in bytes.

    The stride ``.._down`` is that between rows, and ``.._right`` that between columns; ``out`` is the result.
    """

    lhs: Address
    rhs: Address
    result: Address
    m: Word
    n: Word
    k: Word
    lhs_down: Word
    lhs_right: Word
    rhs_down: Word
    rhs_right: Word
    out_down: Word
    out_right: Word


@cache
def integer_dot_code(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, algorithm: IntegerDotAlgorithm
) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of an IntegerDotRecord.

    The element types must be integers of at least 8 bits. Sums are in the type ``result``.
    """
    ir = integer_dot_ir(lhs, rhs, result, algorithm)
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.UNROLL)


def integer_dot_ir(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, algorithm: IntegerDotAlgorithm
) -> str:
    """Return the IR of ``integer_dot_code``."""
    a, b, t = (f"i{8 * kind.byte_size}" for kind in (lhs, rhs, result))
    sums = RowSums(
        *(1, a, b, t, result.byte_size),
        widen_a=lambda x: x.resized(t, signed=lhs.is_signed_integer),
        widen_b=lambda x: x.resized(t, signed=rhs.is_signed_integer),
        add=lambda total, x, y: total + x * y,
    )
    f = FunctionWriter(FUNCTION, IntegerDotRecord)
    if algorithm is IntegerDotAlgorithm.ROWS:
        _write_by_rows(f, sums)
    elif algorithm is IntegerDotAlgorithm.DEPTH:
        _write_by_depth(f, sums, lhs.byte_size, rhs.byte_size)
    else:
        _write_by_depth(f, sums, f.record.lhs_right, f.record.rhs_down)
    return f.end()


def _write_by_rows(f: FunctionWriter, sums: RowSums) -> None:
    """Write the product as sums of rows of rhs, a block of columns at a time."""
    rec = f.record
    with f.loop(rec.n, step=tuning.INTEGER_COLUMNS) as j:
        count = (rec.n - j).umin(tuning.INTEGER_COLUMNS)
        rhs, out = rec.rhs.at(j * rec.rhs_right), rec.result.at(j * rec.out_right)
        with f.loop(rec.m) as i:
            lhs = rec.lhs.at(i * rec.lhs_down)
            matrices = (
                (lhs, 0, rec.lhs_right),
                (rhs, rec.rhs_down, 0),
                (out.at(i * rec.out_down), 0, 0),
            )
            write_row_sums(f, sums, matrices, rec.k, count)


def _write_by_depth(f: FunctionWriter, sums: RowSums, lhs_step: IntLike, rhs_step: IntLike) -> None:
    """Write each element as a sum along the depth, whose steps in lhs and rhs have these strides in bytes."""
    rec = f.record
    with f.loop(rec.m) as i:
        row = rec.lhs.at(i * rec.lhs_down)
        with f.loop(rec.n) as j:
            column = rec.rhs.at(j * rec.rhs_right)
            with f.repeat(0, f.constant(0, sums.total)) as product:
                d, total = product.values
                x = sums.widen_a(row.at(d * lhs_step).load(sums.lhs))
                y = sums.widen_b(column.at(d * rhs_step).load(sums.rhs))
                total = sums.add(total, x, y)
                product.again(d + 1, total, when=(d + 1).ult(rec.k))
            rec.result.at(i * rec.out_down).at(j * rec.out_right).store(total)
