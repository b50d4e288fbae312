"""Linear algebra over the last dimensions: cholesky, triangular-solve, fft."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import FftAttrs, TriangularSolveAttrs
from spmd.ops.checks import bare, operand_array
from spmd.ops.opdef import OpCost, SizeOf, define
from spmd.shape import COMPLEX_OF, COMPLEX_PARTS, ArrayShape, Shape


def square_matrix(instruction: HloInstruction) -> ArrayShape:
    a = operand_array(instruction, 0)
    if a.rank < 2 or a.dims[-1] != a.dims[-2]:
        raise ShapeError(f"expected square matrices, found {a}")
    if not a.element_type.is_floating and not a.element_type.is_complex:
        raise ShapeError(f"expected floating-point or complex numbers, found {a}")
    return a


# ---- cholesky
def infer_cholesky(instruction: HloInstruction) -> Shape:
    a = square_matrix(instruction)
    return bare(a.element_type, a.dims)


def cholesky_cost(instruction: HloInstruction) -> OpCost:
    """Count n^3 / 3 flops per matrix."""
    a = operand_array(instruction, 0)
    return OpCost(flops=float(a.num_elements * a.dims[-1] // 3))


def cholesky_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count half of the operand read, and half of the result written."""
    return float(size_of(instruction.operand(0).shape))


# ---- triangular-solve
def infer_triangular_solve(instruction: HloInstruction) -> Shape:
    a, b = square_matrix(instruction), operand_array(instruction, 1)
    attrs = instruction.attrs_as(TriangularSolveAttrs)
    if attrs.transpose_a not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise ShapeError(f"unknown transpose_a={attrs.transpose_a}")
    side = -2 if attrs.left_side else -1
    fits = b.rank == a.rank and b.dims[:-2] == a.dims[:-2] and b.dims[side] == a.dims[-1]
    if not fits or b.element_type is not a.element_type:
        raise ShapeError(f"cannot solve {a} against {b} with left_side={attrs.left_side}")
    return bare(b.element_type, b.dims)


def triangular_solve_cost(instruction: HloInstruction) -> OpCost:
    b = operand_array(instruction, 1)
    return OpCost(flops=2.0 * operand_array(instruction, 0).dims[-1] * b.num_elements)


def triangular_solve_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count half of the triangular operand as read."""
    a, b = instruction.operand(0).shape, instruction.operand(1).shape
    return size_of(a) / 2 + size_of(b) + size_of(instruction.shape)


# ---- fft
def infer_fft(instruction: HloInstruction) -> Shape:
    operand, attrs = operand_array(instruction, 0), instruction.attrs_as(FftAttrs)
    rank = len(attrs.length)
    if not 1 <= rank <= 3 or rank > operand.rank:
        raise ShapeError(f"fft_length has {rank} entries, the operand is {operand}")
    if attrs.type not in ("FFT", "IFFT", "RFFT", "IRFFT"):
        raise ShapeError(f"unknown fft_type {attrs.type}")
    real_in = attrs.type == "RFFT"
    if operand.element_type not in (COMPLEX_OF if real_in else COMPLEX_PARTS):
        raise ShapeError(f"{attrs.type} does not take {operand.element_type}")
    halved = attrs.length[-1] // 2 + 1
    taken = (*attrs.length[:-1], halved) if attrs.type == "IRFFT" else attrs.length
    if operand.dims[-rank:] != taken:
        raise ShapeError(
            f"{attrs.type} of length {list(attrs.length)} takes {list(taken)}, found {operand}"
        )
    batch = operand.dims[:-rank]
    if real_in:
        return bare(COMPLEX_OF[operand.element_type], (*batch, *attrs.length[:-1], halved))
    element_type = operand.element_type
    if attrs.type == "IRFFT":
        element_type = COMPLEX_PARTS[element_type]
    return bare(element_type, (*batch, *attrs.length))


def fft_cost(instruction: HloInstruction) -> OpCost:
    """Return XLA's estimate: 8 flops per element and product of floor(log2 n) over the transformed dimensions."""
    factors = 1
    for n in instruction.attrs_as(FftAttrs).length:
        factors *= max(0, n.bit_length() - 1)
    return OpCost(flops=8.0 * factors * operand_array(instruction, 0).num_elements)


define(Opcode.CHOLESKY, infer_cholesky, 1, cost=cholesky_cost, bytes_accessed=cholesky_bytes)
define(
    Opcode.TRIANGULAR_SOLVE,
    infer_triangular_solve,
    2,
    cost=triangular_solve_cost,
    bytes_accessed=triangular_solve_bytes,
)
define(Opcode.FFT, infer_fft, 1, cost=fft_cost)
