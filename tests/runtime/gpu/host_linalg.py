"""cuSOLVER's and cuBLAS's functions as a double of a GPU does them: as LAPACK would, on column-major matrices.

What LAPACK leaves undefined is overwritten with 77, so that a reader of it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from runtime.gpu.linalg_work import SolverCall, SolverFunction, TriangularSolve

_JUNK = 77


def solve_triangular(solve: TriangularSolve, triangles: np.ndarray, sides: np.ndarray) -> None:
    """trsm for each matrix; arrays are [batch..., columns, rows]."""
    for a, b in zip(_matrices(triangles), _matrices(sides), strict=True):
        whole = np.tril(a) if solve.lower else np.triu(a)
        if solve.unit:
            np.fill_diagonal(whole, 1)
        op = {"N": whole, "T": whole.T, "C": whole.conj().T}[solve.op]
        with np.errstate(all="ignore"):
            b[...] = _solved(op, b) if solve.left else _solved(op.T, b.T).T


def _solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def call_solver(call: SolverCall, arrays: Sequence[np.ndarray]) -> None:
    """Run one function of cuSOLVER for each matrix; arrays are [batch..., columns, rows]."""
    matrices, *others, infos = arrays
    count = max(1, int(np.prod(matrices.shape[:-2])))
    rest = [other.reshape(count, *other.shape[matrices.ndim - 2 :]) for other in others]
    found = infos.reshape(count)
    assert all(np.shares_memory(one, other) for one, other in zip(rest, others, strict=True))
    for number, a in enumerate(_matrices(matrices)):
        found[number] = _FUNCTIONS[call.function](call.flag, a, *(own[number] for own in rest))


def _matrices(array: np.ndarray) -> np.ndarray:
    assert array.flags.c_contiguous, "the library sees no gaps"
    return array.reshape(-1, *array.shape[-2:]).swapaxes(-1, -2)


def _potrf(flag: str, a: np.ndarray) -> int:
    """Overwrite the other triangle, too, as potrfBatched may."""
    lower = flag == "L"
    whole = np.tril(a) if lower else np.triu(a)
    whole = whole + np.tril(a, -1).conj().T if lower else whole + np.triu(a, 1).conj().T
    a[...] = _JUNK
    try:
        factor = np.linalg.cholesky(whole)
    except np.linalg.LinAlgError:
        return 1
    a[...] = np.where(np.tri(len(a), dtype=bool), factor, _JUNK)
    if not lower:
        a[...] = a.conj().T.copy()
    return 0


_FUNCTIONS: dict[SolverFunction, Callable[..., int]] = {SolverFunction.POTRF: _potrf}
