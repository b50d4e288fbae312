"""Native code of Cholesky factors and triangular systems of a few rows, the same bits on every processor.

Operations come in the order of the usual LAPACK and BLAS on small matrices, as in spmd/evaluator/linalg.py: programs
return residuals, of which the last bit is all. A library picks its code by the processor, and so does not keep to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.storage import float_name
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from spmd.shape import PrimitiveType

SOLVE = "spmd_small_solve"
#: Rows of the largest matrices that are done here; for larger ones a library is faster.
MOST_ROWS = 16
#: Rows solved one after the other between products.
BLOCK = 4


@dataclass(frozen=True, slots=True)
class SmallSolveForm:
    """lower: of the matrix as it is read, transposed or not. packed: right sides' columns are neighbours in memory."""

    kind: PrimitiveType
    lower: bool
    unit: bool
    packed: bool


@record
class MatrixSteps(Record):
    """Steps in bytes: from one matrix to the next, from row to row, from column to column."""

    matrix: Word
    row: Word
    column: Word


@record
class SmallSolveRecord(Record):
    """``count`` systems of ``size`` equations and ``columns`` right sides, where solutions are to stand."""

    matrices: Address
    sides: Address
    count: Word
    size: Word
    columns: Word
    matrix_steps: MatrixSteps
    side_steps: MatrixSteps


@cache
def small_solve_code(form: SmallSolveForm) -> NativeLibrary:
    """``SOLVE``, which takes the address of a SmallSolveRecord."""
    return host_jit().compile(small_solve_ir(form), (SOLVE,))


def small_solve_ir(form: SmallSolveForm) -> str:
    t, suffix = float_name(form.kind)
    module = Module(
        f"declare {t} @llvm.fma.{suffix}({t}, {t}, {t})", f"declare {t} @llvm.fabs.{suffix}({t})"
    )
    return _Solve(form, module).text()


class _Solve:
    """Writes the function: row blocks one after the other, within one all right sides at a time."""

    a: Pointer
    x: Pointer

    def __init__(self, form: SmallSolveForm, module: Module) -> None:
        self.form = form
        self.f = FunctionWriter(SOLVE, SmallSolveRecord, module=module)
        self.t, _ = float_name(form.kind)

    def text(self) -> str:
        f, rec = self.f, self.f.record
        self.sum = f.variable(self.t)
        matrices, sides, count = rec.matrices, rec.sides, rec.count
        self.size, self.columns = rec.size, rec.columns
        steps, side_steps = rec.matrix_steps, rec.side_steps
        matrix_step, self.a_row, self.a_column = steps.matrix, steps.row, steps.column
        side_step, self.x_row, self.x_column = side_steps.matrix, side_steps.row, side_steps.column
        blocks = (self.size + (BLOCK - 1)) // BLOCK
        cursors = {0: Cursor(matrices, matrix_step), 1: Cursor(sides, side_step)}
        with f.cursor_loop(count, cursors) as (_, here):
            self.a, self.x = here[0], here[1]
            with f.loop(blocks) as turn:
                number = turn if self.form.lower else (blocks - 1) - turn
                start = number * BLOCK
                self.block(start, (self.size - start).smin(BLOCK))
        return f.end()

    def block(self, start: Int, rows: Int) -> None:
        """Less what the known rows give; then row by row."""
        f = self.f
        stop = start + rows
        if self.form.lower:
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
                place = self.unknown(row, c)
                place.store(place.load(self.t) - self.sum.load(self.t))
        with f.loop(rows) as r:
            self.row(start, r if self.form.lower else (rows - 1) - r, rows, r)

    def row(self, start: Int, step: Int, rows: Int, done: Int) -> None:
        """Row ``step`` of the block: divided by its coefficient, and taken out of those not yet done."""
        f, t = self.f, self.t
        row = start + step
        if not self.form.unit:
            pivot = self.coefficient(row, row).load(t)
            inverse = 1.0 / pivot
            is_large = inverse.abs().equals(math.inf)
            with f.vector_loop(self.columns) as c:
                place = self.unknown(row, c)
                x = place.load(t)
                product, quotient = x * inverse, x / pivot
                place.store(is_large.choose(quotient, product))
        others = (rows - done) - 1
        with f.unless_zero(others), f.loop(others) as o:
            behind = (step + o) + 1
            other = start + (behind if self.form.lower else o)
            a = self.coefficient(other, row).load(t)
            with f.vector_loop(self.columns) as c:
                place = self.unknown(other, c)
                x = self.unknown(row, c).load(t)
                place.store(place.load(t) - a * x)

    def coefficient(self, row: Int, column: Int) -> Pointer:
        return self.a.at(row * self.a_row + column * self.a_column)

    def unknown(self, row: Int, column: Int) -> Pointer:
        line = self.x.at(row * self.x_row)
        if self.form.packed:
            return line.element(self.t, column)
        return line.at(column * self.x_column)


def add_factor(module: Module, kind: PrimitiveType, name: str) -> None:
    """Add @name(matrix, size, row, column): the factor L of L L^T over the matrix's lower triangle, steps in bytes.

    Column by column; pivots' sums are made in f64, a column is multiplied by its pivot's reciprocal.
    """
    t, suffix = float_name(kind)
    module.declare(f"declare {t} @llvm.sqrt.{suffix}({t})")
    f = FunctionWriter(
        name, module=module, parameters=("ptr", "i64", "i64", "i64"), linkage="internal"
    )
    matrix, size, row_step, column_step = f.parameters
    wide_sum, sum_ = f.variable("double"), f.variable(t)

    def place(row: Int, column: Int) -> Pointer:
        found: Pointer = matrix.at(row * row_step + column * column_step)
        return found

    with f.loop(size) as j:
        wide_sum.store(Value(f, "double", "-0.0"))
        with f.unless_zero(j), f.loop(j) as k:
            x = place(j, k).load(t).to(F64)
            square = x * x
            wide_sum.store(wide_sum.load(F64.name) + square)
        rounded = wide_sum.load(F64.name).to(F32 if t == F32.name else F64)
        corner = place(j, j)
        pivot = (corner.load(t) - rounded).sqrt()
        corner.store(pivot)
        inverse = 1.0 / pivot
        below = (size - j) - 1
        with f.unless_zero(below), f.loop(below) as b:
            i = (j + b) + 1
            sum_.store(Value(f, t, "-0.0"))
            with f.unless_zero(j), f.loop(j) as k:
                product = place(i, k).load(t) * place(j, k).load(t)
                sum_.store(sum_.load(t) + product)
            at = place(i, j)
            before, total = at.load(t), sum_.load(t)
            at.store((before - total) * inverse)
    f.finish()
