"""Costs of LAPACK routines, so that a factorization costs the same as an opcode and as a library call.

Leading terms in multiplications and additions of the element type (Golub and Van Loan, Matrix Computations), per
matrix of m rows and n columns; potrf and trsm as HLO's own cholesky and triangular-solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from spmd.custom_call import register_custom_call
from spmd.hlo.instruction import HloInstruction
from spmd.ops.linalg import cholesky_cost, triangular_solve_cost
from spmd.ops.opdef import OpCost

#: (rows, columns) -> flops of one matrix.
Flops: TypeAlias = Callable[[int, int], float]


def _lu(m: int, n: int) -> float:
    k = min(m, n)
    return max(m, n) * k**2 - k**3 / 3


def _reflections(m: int, n: int) -> float:
    """Return the flops of Householder QR, which are also those of forming Q from it."""
    return 2 * _lu(m, n)


def _eigenvectors(_: int, n: int) -> float:
    return 9.0 * n**3


def _singular_vectors(m: int, n: int) -> float:
    m, n = max(m, n), min(m, n)
    return 4.0 * m * m * n + 8.0 * m * n * n + 9.0 * n**3


def _schur(_: int, n: int) -> float:
    return 25.0 * n**3


def _hessenberg(_: int, n: int) -> float:
    return 10.0 * n**3 / 3


def _tridiagonal(_: int, n: int) -> float:
    return 4.0 * n**3 / 3


def _tridiagonal_solve_cost(call: HloInstruction) -> OpCost:
    return OpCost(flops=5.0 * call.operand(3).array_shape.num_elements)


def _per_matrix(flops: Flops) -> Callable[[HloInstruction], OpCost]:
    def cost(call: HloInstruction) -> OpCost:
        *batch, m, n = call.operand(0).dims
        return OpCost(flops=math.prod(batch) * flops(m, n))

    return cost


def _register(name: str, types: str, cost: Callable[[HloInstruction], OpCost]) -> None:
    for kind in types:
        register_custom_call(f"lapack_{kind}{name}_ffi", cost=cost)


_register("potrf", "sdcz", cholesky_cost)
_register("trsm", "sdcz", triangular_solve_cost)
_register("getrf", "sdcz", _per_matrix(_lu))
_register("geqrf", "sdcz", _per_matrix(_reflections))
_register("orgqr", "sd", _per_matrix(_reflections))
_register("ungqr", "cz", _per_matrix(_reflections))
_register("syevd", "sd", _per_matrix(_eigenvectors))
_register("heevd", "cz", _per_matrix(_eigenvectors))
_register("gesdd", "sdcz", _per_matrix(_singular_vectors))
_register("gesvd", "sdcz", _per_matrix(_singular_vectors))
_register("geqp3", "sdcz", _per_matrix(_reflections))
_register("geev", "sdcz", _per_matrix(_schur))
_register("gees", "sdcz", _per_matrix(_schur))
_register("gehrd", "sdcz", _per_matrix(_hessenberg))
_register("sytrd", "sd", _per_matrix(_tridiagonal))
_register("hetrd", "cz", _per_matrix(_tridiagonal))
_register("gtsv", "sdcz", _tridiagonal_solve_cost)
