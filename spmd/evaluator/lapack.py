"""LAPACK and BLAS targets of JAX's CPU lowering: potrf, trsm, getrf, geqrf, orgqr, syevd, gesdd; pivots too. Those of
``lapack_library.py`` have no NumPy function.

Matrices are the last two dimensions. Flags are characters, in backend_config ``{uplo = 76 : ui8, ..}``; the info result
is 0, or positive if the factorization failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.linalg import cholesky, triangular_solve
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.ops.attrs import TriangularSolveAttrs

_FLAG = re.compile(r"(\w+)\s*=\s*(\d+)\s*:\s*ui8")
_TRANSPOSE = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}

Lapack: TypeAlias = Callable[[dict[str, str], list[NDArray]], Value]


def flags_of(instruction: HloInstruction) -> dict[str, str]:
    """Return the character flags of a LAPACK call by name."""
    return {
        name: chr(int(code)) for name, code in _FLAG.findall(instruction.annotations.backend_config)
    }


def _potrf(flags: dict[str, str], operands: list[NDArray]) -> Value:
    """Return (a with one triangle replaced by the factor, info); the other triangle is unchanged."""
    (a,) = operands
    lower = flags["uplo"] == "L"
    factor, info = cholesky(a, lower=lower)
    triangle = np.tri(a.shape[-1], dtype=np.bool_)
    result = np.array(a)
    np.copyto(result, factor, where=triangle if lower else triangle.T)
    return (result, info)


def triangular_solve_attrs(flags: dict[str, str]) -> TriangularSolveAttrs:
    """Return the attributes of a triangular solve with trsm's flags."""
    return TriangularSolveAttrs(
        left_side=flags["side"] == "L",
        lower=flags["uplo"] == "L",
        unit_diagonal=flags["diag"] == "U",
        transpose_a=_TRANSPOSE[flags["trans_x"]],
    )


def _trsm(flags: dict[str, str], operands: list[NDArray]) -> Value:
    a, b = operands
    return triangular_solve(a, b, triangular_solve_attrs(flags))


def _getrf(_: dict[str, str], operands: list[NDArray]) -> Value:
    """Return (L and U in one matrix, pivots counted from 1, info). The pivot is the element with the largest sum of
    absolute parts.
    """
    lu = np.array(operands[0])
    m, n = lu.shape[-2:]
    matrices = lu.reshape(-1, m, n)
    pivots = np.zeros((len(matrices), min(m, n)), np.int32)
    info = np.zeros(len(matrices), np.int32)
    for i, a in enumerate(matrices):
        for k in range(min(m, n)):
            p = k + int(np.argmax(np.abs(a[k:, k].real) + np.abs(a[k:, k].imag)))
            pivots[i, k] = p + 1
            a[[k, p]] = a[[p, k]]
            if a[k, k] == 0:
                info[i] = info[i] or k + 1
                continue
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    batch = lu.shape[:-2]
    return (matrices.reshape(lu.shape), pivots.reshape(*batch, -1), info.reshape(batch))


def _geqrf(_: dict[str, str], operands: list[NDArray]) -> Value:
    """Return (R above and Householder vectors below the diagonal, tau)."""
    (a,) = operands
    m, n = a.shape[-2:]
    packed_qr, tau = [], []
    for matrix in a.reshape(-1, m, n):
        h, t = np.linalg.qr(matrix, mode="raw")
        packed_qr.append(h.T)
        tau.append(t)
    return (
        np.asarray(packed_qr, a.dtype).reshape(a.shape),
        np.asarray(tau, a.dtype).reshape(*a.shape[:-2], min(m, n)),
    )


def _orgqr(_: dict[str, str], operands: list[NDArray]) -> Value:
    """Return the first n columns of Q = H1 H2 .. Hk, from geqrf's vectors [.., m, n] and tau [.., k]."""
    vectors, tau = operands
    m, n = vectors.shape[-2:]
    q = np.broadcast_to(np.eye(m, n, dtype=vectors.dtype), vectors.shape).copy()
    for k in reversed(range(tau.shape[-1])):
        v = np.array(vectors[..., :, k])
        v[..., :k] = 0
        v[..., k] = 1
        projected = np.conj(v)[..., None, :] @ q
        q = q - tau[..., k, None, None] * v[..., :, None] * projected
    return q


def _syevd(flags: dict[str, str], operands: list[NDArray]) -> Value:
    """Return (eigenvectors, eigenvalues ascending, info)."""
    (a,) = operands
    values, vectors = np.linalg.eigh(a, UPLO="L" if flags["uplo"] == "L" else "U")
    return (vectors.astype(a.dtype), values, np.zeros(a.shape[:-2], np.int32))


def _gesdd(flags: dict[str, str], operands: list[NDArray]) -> Value:
    """Return (a overwritten, singular values descending, U, V^H, info); mode A full, S reduced, N values alone.

    Mode N leaves U and V^H, which have the shapes of mode A, unspecified: zeros here.
    """
    (a,) = operands
    mode = flags.get("mode", "S")
    if mode == "N":
        *batch, m, n = a.shape
        u, vh = np.zeros((*batch, m, m), a.dtype), np.zeros((*batch, n, n), a.dtype)
        return (a, np.linalg.svd(a, compute_uv=False), u, vh, np.zeros(batch, np.int32))
    if mode not in ("A", "S"):
        raise UnsupportedError(f"gesdd mode {mode} is not evaluated")
    u, s, vh = np.linalg.svd(a, full_matrices=mode == "A")
    return (a, s, u, vh, np.zeros(a.shape[:-2], np.int32))


def _permutation(instruction: HloInstruction, operands: Operands) -> Value:
    """Return the order of rows [.., m] after exchanging row i with row pivots[.., i], counted from 0, for each i in
    turn.

    Raises RunError for a pivot that is no row.
    """
    (pivots,) = arrays_of(operands)
    *batch, rows = instruction.array_shape.dims
    order = (
        np.broadcast_to(np.arange(rows, dtype=np.int32), (*batch, rows)).reshape(-1, rows).copy()
    )
    for one, exchanged in zip(order, pivots.reshape(len(order), -1), strict=True):
        for i, p in enumerate(exchanged):
            if not 0 <= p < rows:
                raise RunError(f"{instruction!r}: pivot {p} is none of {rows} rows")
            one[[i, p]] = one[[p, i]]
    return order.reshape(*batch, rows)


register_custom_call("cu_lu_pivots_to_permutation", evaluate=_permutation)


def _register(name: str, types: str, function: Lapack) -> None:
    def evaluate(instruction: HloInstruction, operands: Operands) -> Value:
        return function(flags_of(instruction), arrays_of(operands))

    for kind in types:
        register_custom_call(f"lapack_{kind}{name}_ffi", evaluate=evaluate)


_register("potrf", "sdcz", _potrf)
_register("trsm", "sdcz", _trsm)
_register("getrf", "sdcz", _getrf)
_register("geqrf", "sdcz", _geqrf)
_register("orgqr", "sd", _orgqr)
_register("ungqr", "cz", _orgqr)
_register("syevd", "sd", _syevd)
_register("heevd", "cz", _syevd)
_register("gesdd", "sdcz", _gesdd)
