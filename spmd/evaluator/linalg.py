"""cholesky, triangular-solve, fft. All batched over leading dimensions."""

from __future__ import annotations

import numpy as np

from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CholeskyAttrs, FftAttrs, TriangularSolveAttrs

#: Rows solved one after the other between matrix products.
_BLOCK = 32


@evaluates(Opcode.CHOLESKY)
def evaluate_cholesky(instruction: HloInstruction, operands: Operands) -> Value:
    """The factor in the lower (or upper) triangle, zeros in the other; NaN where it does not exist."""
    x = array_of(operands[0])
    factor, _ = cholesky(widen(x), lower=instruction.attrs_as(CholeskyAttrs).lower)
    return narrow(factor, x.dtype)


def cholesky(x: NDArray, *, lower: bool) -> tuple[NDArray, NDArray]:
    """Factors of [.., n, n], and for each matrix 0 or (as in LAPACK's info) 1 where it is not positive definite.

    Reads the ``lower`` (or upper) triangle only. x = L L^H, or U^H U.
    """
    a = x if lower else _adjoint(x)
    matrices = a.reshape(-1, *a.shape[-2:])
    factors = np.zeros_like(matrices)
    failed = np.zeros(len(matrices), np.int32)
    for i, matrix in enumerate(matrices):
        try:
            factors[i] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factors[i] = np.tril(np.full_like(matrix, np.nan))
            failed[i] = 1
    factors = factors.reshape(a.shape)
    return (factors if lower else _adjoint(factors)), failed.reshape(a.shape[:-2])


def _adjoint(x: NDArray) -> NDArray:
    return np.conj(np.swapaxes(x, -1, -2))


@evaluates(Opcode.TRIANGULAR_SOLVE)
def evaluate_triangular_solve(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(TriangularSolveAttrs)
    a, b = arrays_of(operands)
    solution = triangular_solve(widen(a), widen(b), attrs)
    return narrow(solution, b.dtype)


def triangular_solve(a: NDArray, b: NDArray, attrs: TriangularSolveAttrs) -> NDArray:
    """x with op(a) x = b, or x op(a) = b. a: [.., n, n] of which one triangle is read; b: [.., n, m] or [.., m, n]."""
    a = np.tril(a) if attrs.lower else np.triu(a)
    lower = attrs.lower
    if attrs.transpose_a != "NO_TRANSPOSE":
        a, lower = np.swapaxes(a, -1, -2), not lower
        a = np.conj(a) if attrs.transpose_a == "ADJOINT" else a
    if not attrs.left_side:  # x op(a) = b  <=>  op(a)^T x^T = b^T
        a, lower, b = np.swapaxes(a, -1, -2), not lower, np.swapaxes(b, -1, -2)
    if not lower:  # reversing rows and columns makes it lower
        x = _forward(a[..., ::-1, ::-1], b[..., ::-1, :], attrs.unit_diagonal)[..., ::-1, :]
    else:
        x = _forward(a, b, attrs.unit_diagonal)
    return x if attrs.left_side else np.swapaxes(x, -1, -2)


def _forward(a: NDArray, b: NDArray, unit: bool) -> NDArray:
    """Forward substitution, in blocks of rows so that most of the work is matrix products."""
    n = a.shape[-1]
    x = np.array(
        np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))
    )
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        if start:
            x[..., start:stop, :] -= a[..., start:stop, :start] @ x[..., :start, :]
        for row in range(start, stop):
            if row > start:
                inner = a[..., row : row + 1, start:row] @ x[..., start:row, :]
                x[..., row : row + 1, :] -= inner
            if not unit:
                x[..., row, :] /= a[..., row, row, None]
    return x


@evaluates(Opcode.FFT)
def evaluate_fft(instruction: HloInstruction, operands: Operands) -> Value:
    """Over the last len(fft_length) dimensions; inverse transforms divide by the number of points."""
    attrs = instruction.attrs_as(FftAttrs)
    x = array_of(operands[0])
    axes = tuple(range(x.ndim - len(attrs.length), x.ndim))
    lengths = attrs.length
    result: NDArray
    if attrs.type == "FFT":
        result = np.fft.fftn(x, axes=axes)
    elif attrs.type == "IFFT":
        result = np.fft.ifftn(x, axes=axes)
    elif attrs.type == "RFFT":
        result = np.fft.rfftn(x, s=lengths, axes=axes)
    else:
        result = np.fft.irfftn(x, s=lengths, axes=axes)
    return np.asarray(result).astype(instruction.array_shape.element_type.numpy, copy=False)
