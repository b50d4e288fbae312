"""Records of linear algebra: Cholesky factors, triangular systems, decompositions."""

from __future__ import annotations

from enum import Enum

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TriangularSolveAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class CholeskyKernel(Kernel):
    """Cholesky factors of operands[0]'s last two dimensions, in one triangle of results[0]; nan if there is none.

    clears: the other triangle is 0 (or nan), else the operand's. results[1], if it exists: 1 for each matrix that has
    no factor.
    """

    lower: bool
    clears: bool


@dataclass(frozen=True)
class TriangularSolveKernel(Kernel):
    """results[0] = x with op(operands[0]) x = operands[1], or x op(operands[0]), over the last two dimensions.

    operands[0] is row-major without gaps.
    """

    attrs: TriangularSolveAttrs


class Routine(Enum):
    """LAPACK's names for real numbers."""

    GETRF = "getrf"
    GEQRF = "geqrf"
    ORGQR = "orgqr"
    SYEVD = "syevd"
    GESDD = "gesdd"

    def name_for(self, kind: PrimitiveType) -> str:
        """Return LAPACK's name of the routine for ``kind``, without the letter of the type."""
        others = {Routine.ORGQR: "ungqr", Routine.SYEVD: "heevd"}
        return others.get(self, self.value) if kind.is_complex else self.value


@dataclass(frozen=True)
class FactorizationKernel(Kernel):
    """results of ``routine`` of operands' last two dimensions, as JAX's custom calls have them.

    getrf (lu, pivots, info), geqrf (r and vectors, tau), orgqr q, syevd (vectors, values, info), gesdd (a, values,
    u, vh, info). Nothing is empty. flag: of syevd the triangle that is read, L or U; of gesdd A for all vectors, S for
    those of values, N for none: u and vh are zeros.
    """

    routine: Routine
    flag: str = ""


@dataclass(frozen=True)
class TridiagonalSolveKernel(Kernel):
    """results of LAPACK's gtsv of operands (dl, d, du, b): (dl, d, du, x, info), as JAX's custom call has them.

    The diagonals [.., n] below, on and above the main one are overwritten; the first element of dl and the last of du
    have no meaning. b and x are [.., n, k]. Nothing is empty.
    """
