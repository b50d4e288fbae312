"""Native code of products of a few rows and a large matrix, which is read once and not packed."""

from __future__ import annotations

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.formats import F32, F64, FloatFormat
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.cpu.kernels.gemm.row_sums_ir import RowSums, write_row_sums
from runtime.cpu.kernels.gemm.thin_dot import FUNCTION, ThinDotRecord
from spmd.shape import PrimitiveType


def thin_dot_ir(kind: PrimitiveType, rows: int, by_row: bool) -> str:
    """Return the IR of ``thin_dot_code``."""
    f = FunctionWriter(FUNCTION, ThinDotRecord)
    write = _write_by_row if by_row else _write_by_column
    write(f, {PrimitiveType.F32: F32, PrimitiveType.F64: F64}[kind], rows)
    return f.end()


def _added(total: Float, a: Float, b: Float, flags: str = "contract") -> Float:
    """Return total + a * b, which may be rounded once. ``flags`` are LLVM's fast-math flags."""
    code, t = total.code, total.type
    product = code.append(f"fmul {flags} {t} {a}, {b}")
    return Float(code, total.format, code.append(f"fadd {flags} {t} {total}, {product}"))


def _write_by_row(f: FunctionWriter, fmt: FloatFormat, rows: int) -> None:
    """Write the product by rows of rhs, which are multiplied by elements of lhs and added to rows of the result."""
    rec, size = f.record, fmt.bits // 8
    t = fmt.name
    sums = RowSums(rows, t, t, t, size, lambda a: a, lambda b: b, _added)
    operands = (rec.lhs, rec.lhs_stride, size), (rec.rhs, rec.rhs_stride, size)
    result = rec.result, rec.result_row, size
    write_row_sums(f, sums, (*operands, result), rec.k, rec.n)


def _write_by_column(f: FunctionWriter, fmt: FloatFormat, rows: int) -> None:
    """Write the product by columns of rhs, whose products with the rows of lhs are summed in vectors."""
    rec = f.record
    left = [rec.lhs.at(r * rec.lhs_stride) for r in range(rows)]
    zeros = [Float(f, fmt, "0.0")] * rows
    with f.loop(rec.n) as j:
        column, to = rec.rhs.at(j * rec.rhs_stride), rec.result.at(j * rec.result_column)
        with f.repeat(0, *zeros) as product:
            d, *totals = product.values
            b = column.element(fmt.name, d).load(fmt)
            sums = [
                _added(total, row.element(fmt.name, d).load(fmt), b, "contract reassoc")
                for total, row in zip(totals, left, strict=True)
            ]
            product.again(d + 1, *sums, when=(d + 1).ult(rec.k))
        for r, total in enumerate(sums):
            to.at(r * rec.result_row).store(total)
