"""Native code of Cholesky factorizations and triangular systems, which calls LAPACK and BLAS matrix by matrix.

Matrices are dense and row-major. LAPACK is column-major, so it is given the other triangle and factorizes the
transposed matrix, whose factor is the transposed factor.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Bool, Float, Int, Value
from runtime.codegen.ir.combine import element_of
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.linalg.small_systems_ir import add_factor
from runtime.cpu.libraries.blas import (
    ADJOINT,
    NO_TRANSPOSE,
    ROW_MAJOR,
    TRANSPOSE,
    BlasFunction,
)
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

CHOLESKY, SOLVE = "spmd_cholesky", "spmd_triangular_solve"
TRANSPOSES = {"NO_TRANSPOSE": NO_TRANSPOSE, "TRANSPOSE": TRANSPOSE, "ADJOINT": ADJOINT}
#: Enumerators of CBLAS.
UPPER, LOWER = 121, 122
NOT_UNIT, UNIT = 131, 132
LEFT, RIGHT = 141, 142

#: LAPACK's argument uplo of the transposed matrix, by whether the row-major factor is lower.
_COLUMNS_OF = {True: ord("U"), False: ord("L")}


@dataclass(frozen=True, slots=True)
class CholeskyVariant:
    """Variant of the code.

    ``lower`` tells that the factor is the lower triangle. ``clears`` tells that the other triangle becomes 0, or nan if
    there is no factor; otherwise it stays unchanged. ``tells`` tells that the code writes an info for each matrix: 1 if
    it has no factor, else 0. ``small`` code uses no library and gives the same bits on every processor.
    """

    kind: PrimitiveType
    lower: bool
    clears: bool
    tells: bool
    small: bool = False


@record
class CholeskyRecord(Record):
    """Addresses of ``count`` matrices of ``size`` by ``size`` elements, and of ``count`` infos (s32), if any."""

    matrices: Address
    count: Word
    size: Word
    infos: Address


@cache
def cholesky_code(variant: CholeskyVariant, potrf: BlasFunction) -> NativeLibrary:
    """Return the library of ``CHOLESKY``, which takes the address of a CholeskyRecord and factorizes in place.

    If a matrix has no factor, the result is nan.
    """
    symbols = {} if variant.small else {"potrf": potrf.address}
    ir = cholesky_ir(variant, potrf.index_bits)
    return host_jit().compile(ir, (CHOLESKY,), symbols)


def cholesky_ir(variant: CholeskyVariant, index_bits: int) -> str:
    """Return the IR of ``cholesky_code``. The sizes of LAPACK have ``index_bits`` bits."""
    module = Module()
    if variant.small:
        add_factor(module, variant.kind)
    else:
        module.declare("declare void @potrf(ptr, ptr, ptr, ptr, ptr, i64)")
    return _Cholesky(variant, f"i{index_bits}", module).text()


class _Cholesky:
    """Writer of the function."""

    def __init__(self, variant: CholeskyVariant, index: str, module: Module) -> None:
        self.variant, self.index, self.item = variant, index, variant.kind.byte_size
        self.part = element_of(variant.kind.numpy).wide  # of complex elements: of their parts
        self.f = FunctionWriter(CHOLESKY, CholeskyRecord, module=module)

    def text(self) -> str:
        f, variant, rec, index = self.f, self.variant, self.f.record, self.index
        self.triangle, self.n_pointer, self.info_pointer = (
            f.variable(t) for t in ("i8", index, index)
        )
        matrices, count, size, infos = rec.matrices, rec.count, rec.size, rec.infos
        self.triangle.store(f.constant(_COLUMNS_OF[variant.lower], "i8"))
        self.n_pointer.store(size.resized(index))
        row_bytes = size * self.item
        matrix_bytes = size * row_bytes
        cursors = {0: Cursor(matrices, matrix_bytes), 1: Cursor(infos, 4)}
        with f.cursor_loop(count, cursors) as (_, here):
            matrix, info = here[0], here[1]
            stopped = self.factorize(matrix, size, row_bytes)
            lost = stopped | self.not_positive(matrix, matrix_bytes)
            if variant.tells:
                info.store(lost.resized("i32"))
            rows = {0: Cursor(matrix, row_bytes)}
            if variant.clears:
                with f.cursor_loop(size, rows) as (i, row):
                    first, length = self.other_part(i, size)
                    f.memset(row[0].at(first * self.item), length * self.item)
            with f.when(lost), f.cursor_loop(size, rows) as (i, row):
                first, length = (f.constant(0), size) if variant.clears else self.own_part(i, size)
                begin = row[0].at(first * self.item)
                with f.cursor_loop(length, {0: Cursor(begin, self.item)}) as (_, at):
                    self.store_nan(at[0])
        return f.end()

    def factorize(self, matrix: Pointer, size: Int, row_bytes: Int) -> Bool:
        """Write the factorization of ``matrix`` in place. Returns whether it stopped before the end.

        Small code does not stop: it makes nan of negative pivots.
        """
        f = self.f
        self.info_pointer.store(f.constant(0, self.index))
        if self.variant.small:
            item = f.constant(self.item)
            steps = (row_bytes, item) if self.variant.lower else (item, row_bytes)
            f.call("void", "factor", matrix, size, *steps)
        else:
            pointers = (self.triangle, self.n_pointer, matrix, self.n_pointer, self.info_pointer)
            f.call("void", "potrf", *pointers, 1)
        info: Int = self.info_pointer.load(self.index)
        return info.differs(0)

    def own_part(self, i: Int, size: Int) -> tuple[Int, Int]:
        """Return the first column of the factor's triangle in row ``i``, and the number of its columns there."""
        return (self.f.constant(0), i + 1) if self.variant.lower else (i, size - i)

    def other_part(self, i: Int, size: Int) -> tuple[Int, Int]:
        """Return the first column of the other triangle in row ``i``, and the number of its columns there."""
        if not self.variant.lower:
            return self.f.constant(0), i
        first = i + 1
        return first, size - first

    def not_positive(self, matrix: Pointer, matrix_bytes: Int) -> Bool:
        """Return whether the last pivot is not positive, or nan.

        A nan pivot makes all later pivots nan, and LAPACK may not stop at it.
        """
        pivot: Float = matrix.at(matrix_bytes).at(-self.item).load(self.part)
        return pivot.compared("ule", 0.0)

    def store_nan(self, pointer: Pointer) -> None:
        """Store nan, or nan + 0i for complex types. NumPy's complex nan has an imaginary part of nan."""
        pointer.store(Value(self.f, self.part, "0x7FF8000000000000"))
        if self.variant.kind.is_complex:
            pointer.element(self.part, 1).store(Value(self.f, self.part, "0.0"))


@dataclass(frozen=True, slots=True)
class SolveVariant:
    """Arguments of CBLAS's trsm other than sizes and addresses, which are enumerators of CBLAS."""

    kind: PrimitiveType
    side: int
    triangle: int
    transpose: int
    diagonal: int


@record
class SolveRecord(Record):
    """Addresses of ``count`` triangular matrices, ``size`` by ``size``, and of right sides, ``rows`` by ``columns``."""

    triangles: Address
    sides: Address
    count: Word
    size: Word
    rows: Word
    columns: Word


@cache
def solve_code(variant: SolveVariant, trsm: BlasFunction) -> NativeLibrary:
    """Return the library of ``SOLVE``, which takes the address of a SolveRecord.

    It overwrites right sides with solutions.
    """
    symbols = {"trsm": trsm.address}
    ir = solve_ir(variant, trsm.index_bits)
    return host_jit().compile(ir, (SOLVE,), symbols)


def solve_ir(variant: SolveVariant, index_bits: int) -> str:
    """Return the IR of ``solve_code``. The sizes of BLAS have ``index_bits`` bits."""
    from runtime.cpu.kernels.gemm.blas_call_ir import blas_factor  # few programs need it

    f, index = FunctionWriter(SOLVE, SolveRecord), f"i{index_bits}"
    rec = f.record
    alpha = blas_factor(f, variant.kind, "1.0")
    types = f"i32, i32, i32, i32, i32, {index}, {index}, {alpha.type}, ptr, {index}, ptr, {index}"
    f.declare(f"declare void @trsm({types})")
    triangles, sides, count = rec.triangles, rec.sides, rec.count
    size, rows, columns = rec.size, rec.rows, rec.columns
    item = variant.kind.byte_size
    cursors = {
        0: Cursor(triangles, size * size * item),
        1: Cursor(sides, rows * columns * item),
    }
    m, n, k = (x.resized(index) for x in (rows, columns, size))
    flags = (ROW_MAJOR, variant.side, variant.triangle, variant.transpose, variant.diagonal)
    with f.cursor_loop(count, cursors) as (_, here):
        given = [f.constant(flag, "i32") for flag in flags]
        f.call("void", "trsm", *given, m, n, alpha, here[0], k, here[1], n)
    return f.end()
