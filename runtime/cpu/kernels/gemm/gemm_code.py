"""Records, variants and code of matrix products: calls of BLAS, and small products in registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.ir.record import Address, Record, Word, record, word_count
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_has, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.libraries.blas import BlasFunction
from spmd.shape import PrimitiveType

GEMM, GEMV, TRANSPOSING_GEMM = "spmd_gemm", "spmd_gemv", "spmd_transposing_gemm"


ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112


#: Most elements of a right matrix that is transposed on the stack.
MOST_TRANSPOSED = 4096


@record
class GemmRecord(Record):
    """result[m, n] = lhs[m, k] rhs[k, n], row-major; operands may be transposed. lda, ldb, ldc: leading dimensions."""

    lhs: Address
    rhs: Address
    result: Address
    m: Word
    n: Word
    k: Word
    lda: Word
    ldb: Word
    ldc: Word
    transpose_lhs: Word
    transpose_rhs: Word


@record
class GemvRecord(Record):
    """result = matrix vector; the matrix is stored as ``rows`` rows of ``columns`` elements, and may be transposed.

    Strides are in elements.
    """

    matrix: Address
    vector: Address
    result: Address
    rows: Word
    columns: Word
    lda: Word
    vector_step: Word
    result_step: Word
    transpose: Word


#: Indices of the words with the addresses of operands and result.
LHS_WORD, RHS_WORD, RESULT_WORD = range(3)


#: Words of a product's record; those of the copy that transposes the right matrix follow.
GEMM_WORDS = word_count(GemmRecord)


# ---- small products in registers

#: Element types, and LLVM's names of them.
TYPES = {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}


_MOST_ROWS = 8


#: Cycles of an addition's latency, and of a loop's overhead.
_SUM_TURNS, _LOOP_TURNS = 4.0, 1.0


@dataclass(frozen=True, slots=True)
class VectorRegisters:
    """Vector registers: their width in bytes, and the number of them that may hold sums."""

    bytes: int
    sums: int


@cache
def host_registers() -> VectorRegisters:
    return VectorRegisters(64, 24) if host_has("avx512f") else VectorRegisters(32, 12)


@dataclass(frozen=True, slots=True)
class RegisterBlock:
    """``rows`` of the result, and ``vectors`` of ``lanes`` columns each. is_wider: of more columns than the matrix."""

    rows: int
    vectors: int
    lanes: int
    is_wider: bool

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def turns(self, m: int, n: int) -> float:
        """Estimate the cycles for one depth of all m times n results.

        In one cycle two vectors are multiplied and added, or two numbers are loaded, or a vector.
        """
        each = max(self.rows * self.vectors / 2, self.rows / 2 + self.vectors) + _LOOP_TURNS
        return max(each, _SUM_TURNS) * -(-m // self.rows) * -(-n // self.columns)


@cache
def register_block(m: int, n: int, kind: PrimitiveType) -> RegisterBlock:
    """Return the block with the fewest cycles for m rows and n columns."""
    registers = host_registers()
    lanes = min(1 << (n - 1).bit_length(), registers.bytes // kind.byte_size)
    blocks = [
        RegisterBlock(rows, vectors, lanes, vectors * lanes > n)
        for rows in range(1, min(m, _MOST_ROWS) + 1)
        for vectors in range(1, min(-(-n // lanes), registers.sums // rows) + 1)
    ]
    return min(blocks, key=lambda block: (block.turns(m, n), -block.rows))


# ---- code

#: Product of f32 or f64: a small one in registers, or BLAS's.
Product: TypeAlias = RegisterBlock | BlasFunction


@cache
def gemm_code(kind: PrimitiveType, product: Product) -> NativeLibrary:
    """Return the library of ``GEMM``, which takes the address of a GemmRecord."""
    passes = Passes.CALL if isinstance(product, BlasFunction) else Passes.TIDY
    return _compiled("gemm_ir", GEMM, kind, product, passes)


@cache
def transposing_gemm_code(kind: PrimitiveType, product: Product) -> NativeLibrary:
    """Return the library of ``TRANSPOSING_GEMM``. It takes a GemmRecord, then the record of a copy of the right matrix.

    The copy makes the right matrix row-major, on the stack: small right matrices are read much faster by row.
    """
    return _compiled("transposing_gemm_ir", TRANSPOSING_GEMM, kind, product, Passes.TIDY)


@cache
def gemv_code(kind: PrimitiveType, gemv: BlasFunction) -> NativeLibrary:
    """Return the library of ``GEMV``, which takes the address of a GemvRecord."""
    return _compiled("gemv_ir", GEMV, kind, gemv, Passes.CALL)


def _compiled(
    function: str, name: str, kind: PrimitiveType, product: Product, passes: Passes
) -> NativeLibrary:
    """Return the library of function ``name``. Its IR has the bits of BLAS's sizes, and no address."""
    variant = product.index_bits if isinstance(product, BlasFunction) else product
    symbols = {"blas": product.address} if isinstance(product, BlasFunction) else {}
    ir = DeferredIr("runtime.cpu.kernels.gemm.blas_call_ir", function, (kind, variant))
    return host_jit().compile(ir, (name,), symbols, passes=passes)
