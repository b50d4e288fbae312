"""Native code of Cholesky factorizations and triangular systems: LAPACK's and BLAS's functions, matrix by matrix.

Matrices lie row-major without gaps, one behind the other. LAPACK reads columns where we have rows: it is given the
other triangle, and factorizes the transposed matrix, whose factor is the transposed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.complex_numbers import PARTS
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import Cursor, NestWriter
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.linalg.small_systems_ir import factor_ir
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


@dataclass(frozen=True, slots=True)
class CholeskyWords:
    """matrices: address, of ``count`` of ``size`` x ``size``; infos: address of as many s32, if they are told."""

    matrices: int
    count: int
    size: int
    infos: int = 0

    def packed(self) -> list[int]:
        return [self.matrices, self.count, self.size, self.infos]


@cache
def cholesky_code(form: CholeskyForm, potrf: BlasFunction) -> NativeLibrary:
    """``CHOLESKY``, which takes the address of packed words, factorizes in place; what fails becomes nan."""
    symbols = {} if form.small else {"potrf": potrf.address}
    ir = cholesky_ir(form, potrf.index_bits)
    return host_jit().compile(ir, (CHOLESKY,), symbols)


def cholesky_ir(form: CholeskyForm, index_bits: int) -> str:
    factor = ["declare void @potrf(ptr, ptr, ptr, ptr, ptr, i64)"]
    if form.small:
        factor = factor_ir(form.kind, "factor")
    return "\n".join(
        [
            *factor,
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            _cholesky(form, f"i{index_bits}"),
        ]
    )


def _cholesky(form: CholeskyForm, index: str) -> str:
    writer = NestWriter()
    value, add = writer.value, writer.add
    triangle, n_place, info_place = (value(f"alloca {t}") for t in ("i8", index, index))
    matrices, count, size, infos = (writer.next_word(t) for t in ("ptr", "i64", "i64", "ptr"))
    item = form.kind.byte_size
    add(f"store i8 {_COLUMNS_OF[form.lower]}, ptr {triangle}")
    n = size if index == "i64" else value(f"trunc i64 {size} to i32")
    add(f"store {index} {n}, ptr {n_place}")
    row_bytes = value(f"mul i64 {size}, {item}")
    matrix_bytes = value(f"mul i64 {size}, {row_bytes}")
    cursors = {0: Cursor(matrices, matrix_bytes), 1: Cursor(infos, "4")}
    with writer.loop(count, cursors) as (_, here):
        add(f"store {index} 0, ptr {info_place}")
        if form.small:
            steps = (row_bytes, str(item)) if form.lower else (str(item), row_bytes)
            add(f"call void @factor(ptr {here[0]}, i64 {size}, i64 {steps[0]}, i64 {steps[1]})")
        else:
            places = (triangle, n_place, here[0], n_place, info_place)
            arguments = ", ".join(f"ptr {x}" for x in places)
            add(f"call void @potrf({arguments}, i64 1)")
        info = value(f"load {index}, ptr {info_place}")
        stopped = value(f"icmp ne {index} {info}, 0")
        lost = value(f"or i1 {stopped}, {_not_positive(writer, form.kind, here[0], matrix_bytes)}")
        if form.tells:
            add(f"store i32 {value(f'zext i1 {lost} to i32')}, ptr {here[1]}")
        rows = {0: Cursor(here[0], row_bytes)}
        if form.clears:
            with writer.loop(size, rows) as (i, row):
                first, length = _other_part(writer, form, i, size)
                place = _element(writer, row[0], first, item)
                span = value(f"mul i64 {length}, {item}")
                add(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {span}, i1 false)")
        with writer.when(lost), writer.loop(size, rows) as (i, row):
            first, length = ("0", size) if form.clears else _own_part(writer, form, i, size)
            begin = _element(writer, row[0], first, item)
            with writer.loop(length, {0: Cursor(begin, str(item))}) as (_, at):
                _store_nan(writer, form.kind, at[0])
    return writer.function(CHOLESKY)


def _element(writer: NestWriter, row: str, number: str, item: int) -> str:
    way = writer.value(f"mul i64 {number}, {item}")
    return writer.value(f"getelementptr i8, ptr {row}, i64 {way}")


def _own_part(writer: NestWriter, form: CholeskyForm, i: str, size: str) -> tuple[str, str]:
    """Return the begin of the triangle in row ``i``, and the number of its elements in the row."""
    if form.lower:
        return "0", writer.value(f"add i64 {i}, 1")
    return i, writer.value(f"sub i64 {size}, {i}")


def _other_part(writer: NestWriter, form: CholeskyForm, i: str, size: str) -> tuple[str, str]:
    if not form.lower:
        return "0", i
    first = writer.value(f"add i64 {i}, 1")
    return first, writer.value(f"sub i64 {size}, {first}")


def _not_positive(writer: NestWriter, kind: PrimitiveType, matrix: str, matrix_bytes: str) -> str:
    """Whether the last pivot is nan: one that was no number, where LAPACK need not stop, makes all behind it nan."""
    part = PARTS[kind].name if kind.is_complex else stored_type(kind)
    end = writer.value(f"getelementptr i8, ptr {matrix}, i64 {matrix_bytes}")
    place = writer.value(f"getelementptr i8, ptr {end}, i64 {-kind.byte_size}")
    pivot = writer.value(f"load {part}, ptr {place}")
    return writer.value(f"fcmp ule {part} {pivot}, 0.0")


def _store_nan(writer: NestWriter, kind: PrimitiveType, place: str) -> None:
    """The imaginary part of a complex one, too, is none of NumPy's: nan + 0i."""
    form = PARTS.get(kind)
    part = form.name if form is not None else stored_type(kind)
    nan = "0x7FF8000000000000"
    writer.add(f"store {part} {nan}, ptr {place}")
    if form is not None:
        second = writer.value(f"getelementptr i8, ptr {place}, i64 {kind.byte_size // 2}")
        writer.add(f"store {part} 0.0, ptr {second}")


@dataclass(frozen=True, slots=True)
class SolveForm:
    """CBLAS's arguments of trsm, but for sizes and places."""

    kind: PrimitiveType
    side: int
    triangle: int
    transpose: int
    diagonal: int


@dataclass(frozen=True, slots=True)
class SolveWords:
    """``count`` triangular matrices of ``size`` x ``size`` and right sides of ``rows`` x ``columns``: addresses."""

    triangles: int
    sides: int
    count: int
    size: int
    rows: int
    columns: int

    def packed(self) -> list[int]:
        return [self.triangles, self.sides, self.count, self.size, self.rows, self.columns]


@cache
def solve_code(form: SolveForm, trsm: BlasFunction) -> NativeLibrary:
    """``SOLVE``, which takes the address of packed words, writes solutions over right sides."""
    symbols = {"trsm": trsm.address}
    ir = solve_ir(form, trsm.index_bits)
    return host_jit().compile(ir, (SOLVE,), symbols)


def solve_ir(form: SolveForm, index_bits: int) -> str:
    writer, index = NestWriter(), f"i{index_bits}"
    value = writer.value
    part = PARTS.get(form.kind)
    if part is not None:
        one = value(f"alloca [2 x {part.name}], align 8")
        writer.add(f"store [2 x {part.name}] [{part.name} 1.0, {part.name} 0.0], ptr {one}")
        alpha_type, alpha = "ptr", one
    else:
        alpha_type, alpha = stored_type(form.kind), "1.0"
    triangles, sides = writer.next_word("ptr"), writer.next_word("ptr")
    count, size, rows, columns = (writer.next_word() for _ in range(4))
    item = form.kind.byte_size
    square = value(f"mul i64 {size}, {size}")
    triangle_bytes = value(f"mul i64 {square}, {item}")
    elements = value(f"mul i64 {rows}, {columns}")
    side_bytes = value(f"mul i64 {elements}, {item}")
    m, n, k = (
        x if index == "i64" else value(f"trunc i64 {x} to i32") for x in (rows, columns, size)
    )
    types = f"i32, i32, i32, i32, i32, {index}, {index}, {alpha_type}, ptr, {index}, ptr, {index}"
    cursors = {0: Cursor(triangles, triangle_bytes), 1: Cursor(sides, side_bytes)}
    with writer.loop(count, cursors) as (_, here):
        flags = (ROW_MAJOR, form.side, form.triangle, form.transpose, form.diagonal)
        writer.add(
            f"call void @trsm({', '.join(f'i32 {flag}' for flag in flags)}, {index} {m}, {index} {n}, "
            f"{alpha_type} {alpha}, ptr {here[0]}, {index} {k}, ptr {here[1]}, {index} {n})"
        )
    return "\n".join([f"declare void @trsm({types})", writer.function(SOLVE)])
