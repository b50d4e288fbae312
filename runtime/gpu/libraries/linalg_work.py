"""Work of cuSOLVER's and cuBLAS's functions on dense matrices, as plain data.

Matrices are column-major without gaps, one behind the other: views have dims [batch..., columns, rows] and are packed.
"""

from __future__ import annotations

import math
from enum import Enum

from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.views import DeviceView
from runtime.gpu.work import Work
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class TriangularSolve(LibraryCall):
    """cuBLAS's trsm of (triangles, sides): op(a) x = b if ``left``, else x op(a) = b, where x overwrites b.

    op: N, T or C (adjoint).
    """

    left: bool
    lower: bool
    op: str
    unit: bool
    can_be_captured = True
    waits = False

    def on(self, name: str, arrays: tuple[DeviceView, ...]) -> TriangularSolveWork:
        triangles, sides = arrays
        return TriangularSolveWork(name, self, triangles, sides)


@dataclass(frozen=True)
class TriangularSolveWork(Work):
    """One ``solve`` for each matrix of a batch."""

    implementation = "library"
    solve: TriangularSolve
    triangles: DeviceView
    sides: DeviceView

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return self.triangles, self.sides

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return (self.sides,)


class SolverFunction(Enum):
    """Functions of cuSOLVER by LAPACK's names for real numbers. Each overwrites its first array, a.

    potrf (a, info), getrf (a, pivots, info), geqrf (a, tau, info), orgqr (a, tau, info), syevd (a, values, info), gesvd
    (a, values, u, vh, info) of matrices with at least as many rows as columns, gesvdj (a, values, u, v, info) of a
    batch of small matrices. There is an info (s32) for each matrix.
    """

    POTRF = "potrf"
    GETRF = "getrf"
    GEQRF = "geqrf"
    ORGQR = "orgqr"
    SYEVD = "syevd"
    GESVD = "gesvd"
    GESVDJ = "gesvdj"


#: Functions whose library reads intermediate results on the host.
_ITERATIVE = (SolverFunction.SYEVD, SolverFunction.GESVD, SolverFunction.GESVDJ)
#: Most rows and columns of matrices that are decomposed by cuBLAS's batched functions.
_MOST_BATCHED_ROWS = 128


@dataclass(frozen=True)
class SolverCall(LibraryCall):
    """Call of ``function``. flag: of potrf and syevd the triangle L or U, of others the singular vectors A, S or N."""

    function: SolverFunction
    flag: str = ""

    @property
    def can_be_captured(self) -> bool:
        """True if a captured call gave the same results (cuSOLVER 12.0 on an H200; it documents no captures)."""
        return self.function not in _ITERATIVE

    @property
    def waits(self) -> bool:
        return self.function in _ITERATIVE

    def is_batched_by_cublas(self, count: int, rows: int, columns: int) -> bool:
        """Return whether cuBLAS has a function for so many matrices, and they are small.

        cuSOLVER has none, and large matrices keep the device busy one by one.
        """
        if count == 1 or max(rows, columns) > _MOST_BATCHED_ROWS:
            return False
        if self.function is SolverFunction.GETRF:
            return rows == columns
        return self.function is SolverFunction.GEQRF

    def on(self, name: str, arrays: tuple[DeviceView, ...]) -> SolverWork:
        return SolverWork(name, self, arrays)


@dataclass(frozen=True)
class SolverWork(Work):
    """One ``call`` for each matrix of a batch."""

    implementation = "library"
    call: SolverCall
    arrays: tuple[DeviceView, ...]

    @property
    def reads(self) -> tuple[DeviceView, ...]:
        return self.arrays

    @property
    def writes(self) -> tuple[DeviceView, ...]:
        return self.arrays


def batch_of(view: DeviceView) -> tuple[int, int, int]:
    """Return the number of matrices, and the rows and columns of each as the library sees them."""
    *batch, columns, rows = view.view.dims
    return math.prod(batch), rows, columns
