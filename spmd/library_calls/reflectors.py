"""Products with the orthogonal matrix of a QR factorization that is kept as reflectors (LAPACK's ormqr and unmqr).

Q = H1 H2 .. Hk with Hi = I - tau_i v_i v_i^H is I - V T V^H, where V has the columns v_i and T is the inverse of the
upper triangle of V^H V with 1 / tau_i in place of its diagonal (T. Joffrain, T. M. Low, E. S. Quintana-Orti, R. van de
Geijn and F. G. Van Zee, Accumulating Householder transformations, revisited, 2006). So a product with Q takes two
products with V and a triangular solve of k equations, and no matrix of the size of Q.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.library_calls.arithmetic import conjugate
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.library_calls.solvers import flag
from spmd.ops.attrs import DotAttrs, TriangularSolveAttrs
from spmd.shape import PrimitiveType

#: The precision that JAX uses in its own expansion: with TF32, Q would not be orthogonal.
_PRECISION = ("highest", "highest")
_TARGETS = (
    "cusolver_ormqr_ffi",
    *(f"lapack_{letter}ormqr_ffi" for letter in "sd"),
    *(f"lapack_{letter}unmqr_ffi" for letter in "cz"),
)


@LIBRARY_CALLS.register(*_TARGETS)
def reflected(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return op(Q) c, or c op(Q) unless the call is ``left``; op is the adjoint if it is to ``transpose``.

    Operands are [.., m, n] with the reflectors below the diagonal, tau [.., k] and c.
    """
    require_operands(call, operands, 3)
    a, tau, c = operands
    left, adjoint = flag(call, "left"), flag(call, "transpose")
    *_, m, n = a.dims
    if not tau.dims[-1] <= min(m, n):
        raise UnsupportedError(f"{call!r}: more reflectors than columns")
    if not tau.dims[-1]:
        return (c,)
    v, inverse = _reflectors(a, tau, b)
    v_h = conjugate(v, b)
    rank = len(a.dims)
    transpose_a = "ADJOINT" if adjoint else "NO_TRANSPOSE"
    solve = TriangularSolveAttrs(left_side=left, lower=False, transpose_a=transpose_a)
    if left:
        projected = _product(v_h, rank - 2, c, rank - 2, b)
        solved = b.create(Opcode.TRIANGULAR_SOLVE, (inverse, projected), solve)
        change = _product(v, rank - 1, solved, rank - 2, b)
    else:
        projected = _product(c, rank - 1, v, rank - 2, b)
        solved = b.create(Opcode.TRIANGULAR_SOLVE, (inverse, projected), solve)
        change = _product(solved, rank - 1, v_h, rank - 1, b)
    return (b.subtract(c, change),)


def _reflectors(
    a: HloInstruction, tau: HloInstruction, b: Builder
) -> tuple[HloInstruction, HloInstruction]:
    """Return V [.., m, k] and the inverse of T [.., k, k]. A reflector with tau 0 is none: its column of V is 0."""
    *batch, m, _ = a.dims
    k = tau.dims[-1]
    rank = len(a.dims)
    kind = a.array_shape.element_type
    columns = b.slice(a, (0,) * rank, (*batch, m, k))
    zero, one = b.scalar(kind, 0), b.scalar(kind, 1)
    is_none = b.compare(tau, b.broadcast_scalar(zero, tau.dims), "EQ")
    row, column = _numbers(b, (*batch, m, k))
    below, on = b.compare(row, column, "GT"), b.compare(row, column, "EQ")
    zeros, ones = (b.broadcast_scalar(x, columns.dims) for x in (zero, one))
    unit = b.select(below, columns, b.select(on, ones, zeros))
    of_column = (*range(rank - 2), rank - 1)
    v = b.select(b.broadcast(is_none, of_column, columns.dims), zeros, unit)

    square = (*batch, k, k)
    row, column = _numbers(b, square)
    inverse_tau = b.divide(
        b.broadcast_scalar(one, tau.dims),
        b.select(is_none, b.broadcast_scalar(one, tau.dims), tau),
    )
    gram = _product(conjugate(v, b), rank - 2, v, rank - 2, b)
    diagonal = b.broadcast(inverse_tau, of_column, square)
    return v, b.select(b.compare(row, column, "EQ"), diagonal, gram)


def _numbers(b: Builder, dims: Sequence[int]) -> tuple[HloInstruction, HloInstruction]:
    """Return the row and the column of each element."""
    row, column = (b.iota(PrimitiveType.S32, dims, len(dims) - back) for back in (2, 1))
    return row, column


def _product(
    x: HloInstruction, of_x: int, y: HloInstruction, of_y: int, b: Builder
) -> HloInstruction:
    """Return the product over these dimensions, for each index of the batch."""
    batch = tuple(range(len(x.dims) - 2))
    return b.dot(x, y, DotAttrs((of_x,), (of_y,), batch, batch, _PRECISION))
