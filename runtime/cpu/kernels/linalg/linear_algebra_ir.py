"""Native code of Cholesky factorizations and triangular systems: LAPACK's and BLAS's functions, matrix by matrix.

Matrices lie row-major without gaps, one behind the other. LAPACK reads columns where we have rows: it is given the
other triangle, and factorizes the transposed matrix, whose factor is the transposed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Bool, Float, Int, Value
from runtime.codegen.elements.complex_numbers import PARTS
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.linalg.small_systems_ir import add_factor
from runtime.cpu.libraries.blas import BlasFunction
from spmd.shape import PrimitiveType

CHOLESKY, SOLVE = "spmd_cholesky", "spmd_triangular_solve"
#: CBLAS's names.
ROW_MAJOR = 101
TRANSPOSES = {"NO_TRANSPOSE": 111, "TRANSPOSE": 112, "ADJOINT": 113}
UPPER, LOWER = 121, 122
NOT_UNIT, UNIT = 131, 132
LEFT, RIGHT = 141, 142

_COLUMNS_OF = {True: ord("U"), False: ord("L")}


@dataclass(frozen=True, slots=True)
class CholeskyForm:
    """clears: the other triangle becomes 0, where there is a factor, and nan otherwise; else it stays.

    tells: a number for each matrix says whether it failed. small: without the library, the same bits everywhere.
    """

    kind: PrimitiveType
    lower: bool
    clears: bool
    tells: bool
    small: bool = False


@record
class CholeskyRecord(Record):
    """matrices: address, of ``count`` of ``size`` x ``size``; infos: address of as many s32, if they are told."""

    matrices: Address
    count: Word
    size: Word
    infos: Address


@cache
def cholesky_code(form: CholeskyForm, potrf: BlasFunction) -> NativeLibrary:
    """``CHOLESKY``, which takes the address of a CholeskyRecord, factorizes in place; what fails becomes nan."""
    symbols = {} if form.small else {"potrf": potrf.address}
    ir = cholesky_ir(form, potrf.index_bits)
    return host_jit().compile(ir, (CHOLESKY,), symbols)


def cholesky_ir(form: CholeskyForm, index_bits: int) -> str:
    module = Module()
    if form.small:
        add_factor(module, form.kind, "factor")
    else:
        module.declare("declare void @potrf(ptr, ptr, ptr, ptr, ptr, i64)")
    return _Cholesky(form, f"i{index_bits}", module).text()


class _Cholesky:
    """Writes the function."""

    def __init__(self, form: CholeskyForm, index: str, module: Module) -> None:
        self.form, self.index, self.item = form, index, form.kind.byte_size
        self.f = FunctionWriter(CHOLESKY, CholeskyRecord, module=module)

    def text(self) -> str:
        f, form, rec, index = self.f, self.form, self.f.record, self.index
        self.triangle, self.n_place, self.info_place = (f.variable(t) for t in ("i8", index, index))
        matrices, count, size, infos = rec.matrices, rec.count, rec.size, rec.infos
        self.triangle.store(f.constant(_COLUMNS_OF[form.lower], "i8"))
        self.n_place.store(size.resized(index))
        row_bytes = size * self.item
        matrix_bytes = size * row_bytes
        cursors = {0: Cursor(matrices, matrix_bytes), 1: Cursor(infos, 4)}
        with f.cursor_loop(count, cursors) as (_, here):
            matrix, told = here[0], here[1]
            stopped = self.factorize(matrix, size, row_bytes)
            lost = stopped | self.not_positive(matrix, matrix_bytes)
            if form.tells:
                told.store(lost.resized("i32"))
            rows = {0: Cursor(matrix, row_bytes)}
            if form.clears:
                with f.cursor_loop(size, rows) as (i, row):
                    first, length = self.other_part(i, size)
                    f.memset(row[0].at(first * self.item), length * self.item)
            with f.when(lost), f.cursor_loop(size, rows) as (i, row):
                first, length = (f.constant(0), size) if form.clears else self.own_part(i, size)
                begin = row[0].at(first * self.item)
                with f.cursor_loop(length, {0: Cursor(begin, self.item)}) as (_, at):
                    self.store_nan(at[0])
        return f.end()

    def factorize(self, matrix: Pointer, size: Int, row_bytes: Int) -> Bool:
        """Factorize in place; whether it stopped before the end."""
        f = self.f
        self.info_place.store(f.constant(0, self.index))
        if self.form.small:
            item = f.constant(self.item)
            steps = (row_bytes, item) if self.form.lower else (item, row_bytes)
            f.call("void", "factor", matrix, size, *steps)
        else:
            places = (self.triangle, self.n_place, matrix, self.n_place, self.info_place)
            f.call("void", "potrf", *places, 1)
        info: Int = self.info_place.load(self.index)
        return info.differs(0)

    def own_part(self, i: Int, size: Int) -> tuple[Int, Int]:
        """Return the begin of the triangle in row ``i``, and the number of its elements in the row."""
        return (self.f.constant(0), i + 1) if self.form.lower else (i, size - i)

    def other_part(self, i: Int, size: Int) -> tuple[Int, Int]:
        if not self.form.lower:
            return self.f.constant(0), i
        first = i + 1
        return first, size - first

    def not_positive(self, matrix: Pointer, matrix_bytes: Int) -> Bool:
        """Return whether the last pivot is nan.

        A pivot that is no number makes all behind it nan, and LAPACK need not stop there.
        """
        kind = self.form.kind
        part = PARTS[kind].name if kind.is_complex else stored_type(kind)
        pivot: Float = matrix.at(matrix_bytes).at(-kind.byte_size).load(part)
        return pivot.compared("ule", 0.0)

    def store_nan(self, place: Pointer) -> None:
        """The imaginary part of a complex one, too, is none of NumPy's: nan + 0i."""
        kind = self.form.kind
        form = PARTS.get(kind)
        part = form.name if form is not None else stored_type(kind)
        place.store(Value(self.f, part, "0x7FF8000000000000"))
        if form is not None:
            place.at(kind.byte_size // 2).store(Value(self.f, part, "0.0"))


@dataclass(frozen=True, slots=True)
class SolveForm:
    """CBLAS's arguments of trsm, but for sizes and places."""

    kind: PrimitiveType
    side: int
    triangle: int
    transpose: int
    diagonal: int


@record
class SolveRecord(Record):
    """``count`` triangular matrices of ``size`` x ``size`` and right sides of ``rows`` x ``columns``: addresses."""

    triangles: Address
    sides: Address
    count: Word
    size: Word
    rows: Word
    columns: Word


@cache
def solve_code(form: SolveForm, trsm: BlasFunction) -> NativeLibrary:
    """``SOLVE``, which takes the address of a SolveRecord, writes solutions over right sides."""
    symbols = {"trsm": trsm.address}
    ir = solve_ir(form, trsm.index_bits)
    return host_jit().compile(ir, (SOLVE,), symbols)


def solve_ir(form: SolveForm, index_bits: int) -> str:
    f, index = FunctionWriter(SOLVE, SolveRecord), f"i{index_bits}"
    rec = f.record
    alpha = _one(f, form.kind)
    types = f"i32, i32, i32, i32, i32, {index}, {index}, {alpha.type}, ptr, {index}, ptr, {index}"
    f.declare(f"declare void @trsm({types})")
    triangles, sides, count = rec.triangles, rec.sides, rec.count
    size, rows, columns = rec.size, rec.rows, rec.columns
    item = form.kind.byte_size
    cursors = {
        0: Cursor(triangles, size * size * item),
        1: Cursor(sides, rows * columns * item),
    }
    m, n, k = (x.resized(index) for x in (rows, columns, size))
    flags = (ROW_MAJOR, form.side, form.triangle, form.transpose, form.diagonal)
    with f.cursor_loop(count, cursors) as (_, here):
        given = [f.constant(flag, "i32") for flag in flags]
        f.call("void", "trsm", *given, m, n, alpha, here[0], k, here[1], n)
    return f.end()


def _one(f: FunctionWriter, kind: PrimitiveType) -> Value:
    """Return 1 as BLAS takes it: a number, or the address of a complex one."""
    part = PARTS.get(kind)
    if part is None:
        return Value(f, stored_type(kind), "1.0")
    pair = f"[2 x {part.name}]"
    one = f.variable(pair, align=8)
    one.store(Value(f, pair, f"[{part.name} 1.0, {part.name} 0.0]"))
    return one
