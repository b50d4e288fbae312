"""Calls of cuSOLVER's and cuBLAS's linear algebra functions, as plain data.

The matrices of a batch are column-major and contiguous: their views have dims [batch..., columns, rows] and are packed.
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
    """Call of cuBLAS's trsm on the arrays (a, b), the triangular matrices and the right-hand sides.

    It solves op(a) x = b if ``left``, else x op(a) = b. The solution x overwrites b. lower: a is lower triangular.
    op: N, T or C (identity, transpose, adjoint). unit: the diagonal of a is taken to be 1.
    """

    left: bool
    lower: bool
    op: str
    unit: bool
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> TriangularSolveWork:
        triangles, sides = arrays
        return TriangularSolveWork(self, triangles, sides)


@dataclass(frozen=True)
class TriangularSolveWork(Work):
    """Triangular solve for each matrix of a batch. ``sides`` are read and overwritten."""

    solve: TriangularSolve
    triangles: DeviceView
    sides: DeviceView


class SolverFunction(Enum):
    """Functions of cuSOLVER, by LAPACK's names for real numbers. Each overwrites its first array, a.

    The arrays are: potrf (a, info), getrf (a, pivots, info), geqrf (a, tau, info), orgqr (a, tau, info), syevd (a,
    values, info), gesvd (a, values, u, vh, info), whose matrices have at least as many rows as columns, and gesvdj (a,
    values, u, v, info), for a batch of small matrices. info has one s32 status for each matrix.
    """

    POTRF = "potrf"
    GETRF = "getrf"
    GEQRF = "geqrf"
    ORGQR = "orgqr"
    SYEVD = "syevd"
    GESVD = "gesvd"
    GESVDJ = "gesvdj"


#: Iterative functions: the library reads intermediate results on the host.
_ITERATIVE = (SolverFunction.SYEVD, SolverFunction.GESVD, SolverFunction.GESVDJ)
#: Most rows and columns of matrices that cuBLAS's batched functions decompose.
_MOST_BATCHED_ROWS = 128


@dataclass(frozen=True)
class SolverCall(LibraryCall):
    """Call of ``function`` of cuSOLVER, or of the equivalent batched function of cuBLAS.

    flag: triangle L or U for potrf and syevd; singular vectors A (all), S (the first ones) or N (none) for gesvd and
    gesvdj; otherwise empty.
    """

    function: SolverFunction
    flag: str = ""

    @property
    def can_be_captured(self) -> bool:
        """True if a CUDA graph may contain the call.

        cuSOLVER documents no captures; a captured call gave the same results with version 12.0 on an H200.
        """
        return self.function not in _ITERATIVE

    def is_batched_by_cublas(self, count: int, rows: int, columns: int) -> bool:
        """Return whether one call of cuBLAS computes ``function`` for ``count`` matrices of ``rows`` by ``columns``.

        cuSOLVER has no batched LU and QR decompositions. Matrices of more than _MOST_BATCHED_ROWS rows or columns keep
        the device busy one by one, so cuSOLVER is used.
        """
        if count == 1 or max(rows, columns) > _MOST_BATCHED_ROWS:
            return False
        if self.function is SolverFunction.GETRF:
            return rows == columns
        return self.function is SolverFunction.GEQRF

    def on(self, arrays: tuple[DeviceView, ...]) -> SolverWork:
        return SolverWork(self, arrays)


@dataclass(frozen=True)
class SolverWork(Work):
    """Decomposition of each matrix of a batch by ``call``, which reads and writes ``arrays``."""

    call: SolverCall
    arrays: tuple[DeviceView, ...]


def batch_of(view: DeviceView) -> tuple[int, int, int]:
    """Return (number of matrices, rows, columns) of a packed column-major batch [batch..., columns, rows]."""
    *batch, columns, rows = view.view.dims
    return math.prod(batch), rows, columns
