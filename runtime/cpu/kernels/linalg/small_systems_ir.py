"""Native code of Cholesky factors and triangular systems of a few rows, with the same bits on every processor.

Operations have the order of the reference LAPACK and BLAS for small matrices, as in spmd/evaluator/linalg.py, because
programs return residuals, which consist of rounding errors. The order of a library depends on the processor.
"""

from __future__ import annotations

import math
from functools import cache

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

SOLVE = "spmd_small_solve"
#: Most rows of a matrix, whose results have the same bits on every processor (Zen 5, 256 matrices: OpenBLAS takes 1.3
#: to 1.6 of the time for a Cholesky factor up to there, 1.0 at 24 rows; for systems of 4 to 16 rows 0.5 to 1.0 with 1
#: or 4 right sides, 0.7 to 2.3 with 16, 0.8 to 8 with 64).
MOST_ROWS = 16
#: Rows solved one after the other between products (Zen 5, 16 rows: 1 takes 0.5 to 0.7 of the time with 1 or 4 right
#: sides, 1.0 to 1.1 with 16, 1.1 to 1.3 with 64; 16 3.1, 2.2, 1.0 and 0.2).
BLOCK = 4


@dataclass(frozen=True, slots=True)
class SmallSolveVariant:
    """Variant of the code. ``lower`` tells that the matrix as it is read, transposed or not, is a lower triangle.

    ``unit`` tells that its diagonal is 1, and ``packed`` that the elements of a row of right sides are contiguous.
    """

    kind: PrimitiveType
    lower: bool
    unit: bool
    packed: bool


@record
class MatrixStrides(Record):
    """Strides in bytes between matrices, rows and columns."""

    matrix: Word
    row: Word
    column: Word


@record
class SmallSolveRecord(Record):
    """Record of ``count`` systems of ``size`` equations with ``columns`` right sides, which the solutions overwrite.

    ``matrix_strides`` are those of the triangles, and ``side_strides`` those of the right sides.
    """

    matrices: Address
    sides: Address
    count: Word
    size: Word
    columns: Word
    matrix_strides: MatrixStrides
    side_strides: MatrixStrides


@cache
def small_solve_code(variant: SmallSolveVariant) -> NativeLibrary:
    """Return the library of ``SOLVE``, which takes the address of a SmallSolveRecord."""
    return host_jit().compile(_Solve(variant).text(), (SOLVE,))


class _Solve:
    """Writer of the function, which solves one block of rows after the other, for all right sides at a time."""

    a: Pointer
    x: Pointer

    def __init__(self, variant: SmallSolveVariant) -> None:
        self.variant = variant
        self.f = FunctionWriter(SOLVE, SmallSolveRecord)
        self.t = wide_type(variant.kind)

    def text(self) -> str:
        f, rec = self.f, self.f.record
        self.sum = f.variable(self.t)
        matrices, sides, count = rec.matrices, rec.sides, rec.count
        self.size, self.columns = rec.size, rec.columns
        strides, side_strides = rec.matrix_strides, rec.side_strides
        matrix_stride, self.a_row, self.a_column = strides.matrix, strides.row, strides.column
        side_step, self.x_row, self.x_column = (
            side_strides.matrix,
            side_strides.row,
            side_strides.column,
        )
        blocks = (self.size + (BLOCK - 1)) // BLOCK
        cursors = {0: Cursor(matrices, matrix_stride), 1: Cursor(sides, side_step)}
        with f.cursor_loop(count, cursors) as (_, here):
            self.a, self.x = here[0], here[1]
            with f.loop(blocks) as turn:
                number = turn if self.variant.lower else (blocks - 1) - turn
                start = number * BLOCK
                self.block(start, (self.size - start).smin(BLOCK))
        return f.end()

    def block(self, start: Int, rows: Int) -> None:
        """Write the subtraction of products with the solved rows, and then the solution of the block row by row."""
        f = self.f
        stop = start + rows
        if self.variant.lower:
            first, known = f.constant(0), start
        else:
            first, known = stop, self.size - stop
        with f.unless_zero(known), f.loop(rows) as r:
            row = start + r
            with f.loop(self.columns) as c:
                self.sum.store(Value(f, self.t, "0.0"))
                with f.loop(known) as k:
                    column = first + k
                    a = self.coefficient(row, column).load(self.t)
                    x = self.unknown(column, c).load(self.t)
                    self.sum.store(a.fused_times_plus(x, self.sum.load(self.t)))
                pointer = self.unknown(row, c)
                pointer.store(pointer.load(self.t) - self.sum.load(self.t))
        with f.loop(rows) as r:
            self.row(start, r if self.variant.lower else (rows - 1) - r, rows, r)

    def row(self, start: Int, step: Int, rows: Int, done: Int) -> None:
        """Write the solution of row ``step`` of the block, after ``done`` of its ``rows`` rows.

        The row is divided by its pivot, and eliminated from the remaining rows of the block.
        """
        f, t = self.f, self.t
        row = start + step
        if not self.variant.unit:
            pivot = self.coefficient(row, row).load(t)
            inverse = 1.0 / pivot
            is_large = inverse.abs().equals(math.inf)
            with f.vector_loop(self.columns) as c:
                pointer = self.unknown(row, c)
                x = pointer.load(t)
                product, quotient = x * inverse, x / pivot
                pointer.store(is_large.choose(quotient, product))
        others = (rows - done) - 1
        with f.unless_zero(others), f.loop(others) as o:
            behind = (step + o) + 1
            other = start + (behind if self.variant.lower else o)
            a = self.coefficient(other, row).load(t)
            with f.vector_loop(self.columns) as c:
                pointer = self.unknown(other, c)
                x = self.unknown(row, c).load(t)
                pointer.store(pointer.load(t) - a * x)

    def coefficient(self, row: Int, column: Int) -> Pointer:
        """Return the address of an element of the triangle."""
        return self.a.at(row * self.a_row + column * self.a_column)

    def unknown(self, row: Int, column: Int) -> Pointer:
        """Return the address of an element of the right sides, which the solution replaces."""
        line = self.x.at(row * self.x_row)
        if self.variant.packed:
            return line.element(self.t, column)
        return line.at(column * self.x_column)


def add_factor(module: Module, kind: PrimitiveType) -> None:
    """Add ``factor``(matrix, size, row, column), which replaces the lower triangle by the factor L; strides in bytes.

    It proceeds column by column. Pivots are summed in f64, and a column is multiplied by its pivot's reciprocal.
    """
    t = wide_type(kind)
    f = internal_function(module, "factor", "ptr", "i64", "i64", "i64", attributes="")
    matrix, size, row_step, column_step = f.parameters
    wide_sum, sum_ = f.variable("double"), f.variable(t)

    def element_at(row: Int, column: Int) -> Pointer:
        found: Pointer = matrix.at(row * row_step + column * column_step)
        return found

    with f.loop(size) as j:
        wide_sum.store(Value(f, "double", "-0.0"))
        with f.unless_zero(j), f.loop(j) as k:
            x = element_at(j, k).load(t).to(F64)
            square = x * x
            wide_sum.store(wide_sum.load(F64.name) + square)
        rounded = wide_sum.load(F64.name).to(F32 if t == F32.name else F64)
        corner = element_at(j, j)
        pivot = (corner.load(t) - rounded).sqrt()
        corner.store(pivot)
        inverse = 1.0 / pivot
        below = (size - j) - 1
        with f.unless_zero(below), f.loop(below) as b:
            i = (j + b) + 1
            sum_.store(Value(f, t, "-0.0"))
            with f.unless_zero(j), f.loop(j) as k:
                product = element_at(i, k).load(t) * element_at(j, k).load(t)
                sum_.store(sum_.load(t) + product)
            at = element_at(i, j)
            before, total = at.load(t), sum_.load(t)
            at.store((before - total) * inverse)
    f.finish()
