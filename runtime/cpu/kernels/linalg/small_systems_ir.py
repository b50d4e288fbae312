"""Native code of Cholesky factors and triangular systems of a few rows, the same bits on every processor.

Operations come in the order of the usual LAPACK and BLAS on small matrices, as in spmd/evaluator/linalg.py: programs
return residuals, of which the last bit is all. A library picks its code by the processor, and so does not keep to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.storage import float_name
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
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


@dataclass(frozen=True, slots=True)
class SmallSolveWords:
    """``count`` systems of ``size`` equations and ``columns`` right sides, where solutions are to stand.

    Steps in bytes: of matrices from one to the next, from row to row, from column to column; so of right sides.
    """

    matrices: int
    sides: int
    count: int
    size: int
    columns: int
    matrix_steps: Sequence[int]
    side_steps: Sequence[int]

    def packed(self) -> list[int]:
        head = [self.matrices, self.sides, self.count, self.size, self.columns]
        return [*head, *self.matrix_steps, *self.side_steps]


@cache
def small_solve_code(form: SmallSolveForm) -> NativeLibrary:
    """``SOLVE``, which takes the address of packed words."""
    return host_jit().compile(small_solve_ir(form), (SOLVE,))


def small_solve_ir(form: SmallSolveForm) -> str:
    t, suffix = float_name(form.kind)
    return "\n".join(
        [
            f"declare {t} @llvm.fma.{suffix}({t}, {t}, {t})",
            f"declare {t} @llvm.fabs.{suffix}({t})",
            "declare i64 @llvm.smin.i64(i64, i64)",
            _Solve(form).function(),
        ]
    )


class _Solve:
    """Writes the function: row blocks one after the other, within one all right sides at a time."""

    def __init__(self, form: SmallSolveForm) -> None:
        self.form = form
        self.writer = NestWriter()
        self.t, self.suffix = float_name(form.kind)

    def function(self) -> str:
        writer, value, word = self.writer, self.writer.value, self.writer.next_word
        self.sums = value(f"alloca {self.t}")
        matrices, sides = word("ptr"), word("ptr")
        count, self.size, self.columns = word(), word(), word()
        matrix_step, self.a_row, self.a_column = word(), word(), word()
        side_step, self.x_row, self.x_column = word(), word(), word()
        above = value(f"add i64 {self.size}, {BLOCK - 1}")
        blocks = value(f"udiv i64 {above}, {BLOCK}")
        cursors = {0: Cursor(matrices, matrix_step), 1: Cursor(sides, side_step)}
        with writer.loop(count, cursors) as (_, here):
            self.a, self.x = here[0], here[1]
            with writer.loop(blocks, {}) as (turn, _):
                number = turn
                if not self.form.lower:
                    last = value(f"sub i64 {blocks}, 1")
                    number = value(f"sub i64 {last}, {turn}")
                start = value(f"mul i64 {number}, {BLOCK}")
                left = value(f"sub i64 {self.size}, {start}")
                rows = value(f"call i64 @llvm.smin.i64(i64 {left}, i64 {BLOCK})")
                self.block(start, rows)
        return writer.function(SOLVE)

    def block(self, start: str, rows: str) -> None:
        """Less what the known rows give; then row by row."""
        writer, value = self.writer, self.writer.value
        stop = value(f"add i64 {start}, {rows}")
        if self.form.lower:
            first, known = "0", start
        else:
            first, known = stop, value(f"sub i64 {self.size}, {stop}")
        with writer.unless_zero(known), writer.loop(rows, {}) as (r, _):
            row = value(f"add i64 {start}, {r}")
            with writer.loop(self.columns, {}) as (c, _):
                writer.add(f"store {self.t} 0.0, ptr {self.sums}")
                with writer.loop(known, {}) as (k, _):
                    column = value(f"add i64 {first}, {k}")
                    a = value(f"load {self.t}, ptr {self.coefficient(row, column)}")
                    x = value(f"load {self.t}, ptr {self.unknown(column, c)}")
                    so_far = value(f"load {self.t}, ptr {self.sums}")
                    typed = ", ".join(f"{self.t} {y}" for y in (a, x, so_far))
                    total = value(f"call {self.t} @llvm.fma.{self.suffix}({typed})")
                    writer.add(f"store {self.t} {total}, ptr {self.sums}")
                place = self.unknown(row, c)
                before = value(f"load {self.t}, ptr {place}")
                total = value(f"load {self.t}, ptr {self.sums}")
                writer.add(
                    f"store {self.t} {value(f'fsub {self.t} {before}, {total}')}, ptr {place}"
                )
        with writer.loop(rows, {}) as (r, _):
            step = r
            if not self.form.lower:
                end = value(f"sub i64 {rows}, 1")
                step = value(f"sub i64 {end}, {r}")
            self.row(start, step, rows, r)

    def row(self, start: str, step: str, rows: str, done: str) -> None:
        """Row ``step`` of the block: divided by its coefficient, and taken out of those not yet done."""
        writer, value, t = self.writer, self.writer.value, self.t
        row = value(f"add i64 {start}, {step}")
        if not self.form.unit:
            pivot = value(f"load {t}, ptr {self.coefficient(row, row)}")
            inverse = value(f"fdiv {t} 1.0, {pivot}")
            size = value(f"call {t} @llvm.fabs.{self.suffix}({t} {inverse})")
            is_large = value(f"fcmp oeq {t} {size}, 0x7FF0000000000000")
            with writer.element_loop(self.columns) as c:
                place = self.unknown(row, c)
                x = value(f"load {t}, ptr {place}{INDEPENDENT}")
                product, quotient = (
                    value(f"fmul {t} {x}, {inverse}"),
                    value(f"fdiv {t} {x}, {pivot}"),
                )
                result = value(f"select i1 {is_large}, {t} {quotient}, {t} {product}")
                writer.add(f"store {t} {result}, ptr {place}{INDEPENDENT}")
        others = value(f"sub i64 {rows}, {done}")
        others = value(f"sub i64 {others}, 1")
        with writer.unless_zero(others), writer.loop(others, {}) as (o, _):
            behind = value(f"add i64 {step}, {o}")
            behind = value(f"add i64 {behind}, 1")
            other = value(f"add i64 {start}, {behind if self.form.lower else o}")
            a = value(f"load {t}, ptr {self.coefficient(other, row)}")
            with writer.element_loop(self.columns) as c:
                place = self.unknown(other, c)
                x = value(f"load {t}, ptr {self.unknown(row, c)}{INDEPENDENT}")
                before = value(f"load {t}, ptr {place}{INDEPENDENT}")
                product = value(f"fmul {t} {a}, {x}")
                writer.add(
                    f"store {t} {value(f'fsub {t} {before}, {product}')}, ptr {place}{INDEPENDENT}"
                )

    def coefficient(self, row: str, column: str) -> str:
        value = self.writer.value
        down, along = (
            value(f"mul i64 {row}, {self.a_row}"),
            value(f"mul i64 {column}, {self.a_column}"),
        )
        return value(f"getelementptr i8, ptr {self.a}, i64 {value(f'add i64 {down}, {along}')}")

    def unknown(self, row: str, column: str) -> str:
        value = self.writer.value
        down = value(f"mul i64 {row}, {self.x_row}")
        line = value(f"getelementptr i8, ptr {self.x}, i64 {down}")
        if self.form.packed:
            return value(f"getelementptr {self.t}, ptr {line}, i64 {column}")
        along = value(f"mul i64 {column}, {self.x_column}")
        return value(f"getelementptr i8, ptr {line}, i64 {along}")


def factor_ir(kind: PrimitiveType, name: str) -> list[str]:
    """@name(matrix, size, row, column): the factor L of L L^T over the matrix's lower triangle, steps in bytes.

    Column by column; pivots' sums are made in f64, a column is multiplied by its pivot's reciprocal.
    """
    t, suffix = float_name(kind)
    writer = NestWriter()
    value, add = writer.value, writer.add
    wide_sum, sum_ = value("alloca double"), value(f"alloca {t}")
    extended = t == "double"

    def place(row: str, column: str) -> str:
        down, along = value(f"mul i64 {row}, %row"), value(f"mul i64 {column}, %column")
        return value(f"getelementptr i8, ptr %matrix, i64 {value(f'add i64 {down}, {along}')}")

    with writer.loop("%size", {}) as (j, _):
        add(f"store double -0.0, ptr {wide_sum}")
        with writer.unless_zero(j), writer.loop(j, {}) as (k, _):
            x = value(f"load {t}, ptr {place(j, k)}")
            wide = x if extended else value(f"fpext float {x} to double")
            square = value(f"fmul double {wide}, {wide}")
            so_far = value(f"load double, ptr {wide_sum}")
            add(f"store double {value(f'fadd double {so_far}, {square}')}, ptr {wide_sum}")
        squares = value(f"load double, ptr {wide_sum}")
        rounded = squares if extended else value(f"fptrunc double {squares} to float")
        corner = place(j, j)
        diagonal = value(f"load {t}, ptr {corner}")
        rest = value(f"fsub {t} {diagonal}, {rounded}")
        pivot = value(f"call {t} @llvm.sqrt.{suffix}({t} {rest})")
        add(f"store {t} {pivot}, ptr {corner}")
        inverse = value(f"fdiv {t} 1.0, {pivot}")
        below = value(f"sub i64 %size, {j}")
        below = value(f"sub i64 {below}, 1")
        with writer.unless_zero(below), writer.loop(below, {}) as (b, _):
            i = value(f"add i64 {j}, {b}")
            i = value(f"add i64 {i}, 1")
            add(f"store {t} -0.0, ptr {sum_}")
            with writer.unless_zero(j), writer.loop(j, {}) as (k, _):
                x, y = value(f"load {t}, ptr {place(i, k)}"), value(f"load {t}, ptr {place(j, k)}")
                product = value(f"fmul {t} {x}, {y}")
                so_far = value(f"load {t}, ptr {sum_}")
                add(f"store {t} {value(f'fadd {t} {so_far}, {product}')}, ptr {sum_}")
            at = place(i, j)
            before, total = value(f"load {t}, ptr {at}"), value(f"load {t}, ptr {sum_}")
            left = value(f"fsub {t} {before}, {total}")
            add(f"store {t} {value(f'fmul {t} {left}, {inverse}')}, ptr {at}")
    body = "\n".join(writer.lines)
    function = (
        f"define internal void @{name}(ptr %matrix, i64 %size, i64 %row, i64 %column) {{\n"
        f"entry:\n{body}\n  ret void\n}}"
    )
    return [f"declare {t} @llvm.sqrt.{suffix}({t})", function]
