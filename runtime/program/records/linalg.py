"""Records of linear algebra kernels: Cholesky factors, triangular and tridiagonal systems, decompositions."""

from __future__ import annotations

from enum import Enum

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TriangularSolveAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class CholeskyKernel(Kernel):
    """Cholesky factors of the matrices of the last two dimensions of operands[0], in one triangle of results[0].

    lower: the factor is the lower triangle. A matrix without a factor gets nan. clears: the other triangle is set to 0
    (nan if there is no factor); otherwise it is copied from the operand. results[1], if it exists, has an s32 for each
    matrix: 1 if the matrix has no factor, else 0.
    """

    lower: bool
    clears: bool


@dataclass(frozen=True)
class TriangularSolveKernel(Kernel):
    """Triangular solve: results[0] = the solution x of op(a) x = b, or of x op(a) = b.

    a is operands[0], which must be packed, and b is operands[1]; their last two dimensions are the matrices. ``attrs``
    are those of HLO's triangular-solve.
    """

    attrs: TriangularSolveAttrs


class Routine(Enum):
    """Routines of LAPACK, by their names for real numbers."""

    GETRF = "getrf"
    GEQRF = "geqrf"
    ORGQR = "orgqr"
    SYEVD = "syevd"
    GESDD = "gesdd"

    def name_for(self, kind: PrimitiveType) -> str:
        """Return LAPACK's name of the routine for elements of type ``kind``, without the type letter."""
        others = {Routine.ORGQR: "ungqr", Routine.SYEVD: "heevd"}
        return others.get(self, self.value) if kind.is_complex else self.value


@dataclass(frozen=True)
class FactorizationKernel(Kernel):
    """Decompositions of the matrices of the last two dimensions of operands[0] by LAPACK's ``routine``.

    The results are those of JAX's custom calls: getrf (lu, pivots, info), geqrf (r and reflectors, tau), orgqr (q),
    whose operands are (reflectors, tau), syevd (vectors, values, info), gesdd (a, values, u, vh, info). No array is
    empty. flag: for syevd the triangle that is read, L or U; for gesdd A (all singular vectors), S (those of the
    singular values) or N (none: u and vh are zeros).
    """

    routine: Routine
    flag: str = ""


@dataclass(frozen=True)
class TridiagonalSolveKernel(Kernel):
    """Solution of tridiagonal systems by LAPACK's gtsv: operands (dl, d, du, b), results (dl, d, du, x, info).

    The results are those of JAX's custom call. dl, d and du [.., n] are the diagonals below, on and above the main
    diagonal; gtsv overwrites them. The first element of dl and the last element of du are ignored. b and x are
    [.., n, k]. No array is empty.
    """
