"""cuSOLVER's and cuBLAS's functions as a double of a GPU does them: as LAPACK would, on column-major matrices.

What LAPACK leaves undefined is overwritten with 77, so that a reader of it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from runtime.gpu.libraries.linalg_work import SolverCall, SolverFunction, TriangularSolve

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
    assert all(other.flags.c_contiguous for other in (*others, infos))
    rest = [
        other.reshape(count, *other.shape[matrices.ndim - 2 :]) if other.size else [other] * count
        for other in others
    ]
    found = infos.reshape(count)
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


def _getrf(_: str, a: np.ndarray, pivots: np.ndarray) -> int:
    info = 0
    for k in range(min(a.shape)):
        column = a[k:, k]
        pivot = k + int(np.argmax(np.abs(column.real) + np.abs(column.imag)))
        pivots[k] = pivot + 1
        a[[k, pivot]] = a[[pivot, k]]
        if a[k, k] == 0:
            info = info or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return info


def _geqrf(_: str, a: np.ndarray, tau: np.ndarray) -> int:
    found, tau[...] = np.linalg.qr(a, mode="raw")
    a[...] = found.T
    return 0


def _orgqr(_: str, a: np.ndarray, tau: np.ndarray) -> int:
    """The first columns of the product of 1 - tau v v^H."""
    rows, columns = a.shape
    assert rows >= columns >= len(tau)
    q = np.eye(rows, dtype=a.dtype)
    for k in range(len(tau)):
        v = np.concatenate([np.zeros(k, a.dtype), np.ones(1, a.dtype), a[k + 1 :, k]])
        q -= tau[k] * np.outer(q @ v, v.conj())
    a[...] = q[:, :columns]
    return 0


def _syevd(flag: str, a: np.ndarray, values: np.ndarray) -> int:
    values[...], a[...] = np.linalg.eigh(a, UPLO=flag)
    return 0


def _gesvd(flag: str, a: np.ndarray, values: np.ndarray, *vectors: np.ndarray) -> int:
    assert a.shape[0] >= a.shape[1], "which gesvd does not take"
    found = np.linalg.svd(a, full_matrices=flag == "A")
    a[...], values[...] = _JUNK, found[1]
    if flag != "N":
        u, vh = vectors
        u.T[...], vh.T[...] = found[0], found[2]
    return 0


def _gesvdj(flag: str, a: np.ndarray, values: np.ndarray, *vectors: np.ndarray) -> int:
    assert max(a.shape) <= 32, "which gesvdjBatched does not take"
    found = np.linalg.svd(a)
    a[...], values[...] = _JUNK, found[1]
    if flag != "N":
        u, v = vectors
        u.T[...], v.T[...] = found[0], found[2].conj().T
    return 0


_FUNCTIONS: dict[SolverFunction, Callable[..., int]] = {
    SolverFunction.POTRF: _potrf,
    SolverFunction.GETRF: _getrf,
    SolverFunction.GEQRF: _geqrf,
    SolverFunction.ORGQR: _orgqr,
    SolverFunction.SYEVD: _syevd,
    SolverFunction.GESVD: _gesvd,
    SolverFunction.GESVDJ: _gesvdj,
}
