"""Evaluation of cholesky, triangular-solve and fft, all batched over leading dimensions."""

from __future__ import annotations

import numpy as np

from spmd.evaluator.complex_functions import divide
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CholeskyAttrs, FftAttrs, TriangularSolveAttrs

#: Rows solved one after the other between matrix products; BLAS kernels use 4 as well.
_BLOCK = 4


@evaluates(Opcode.CHOLESKY)
def evaluate_cholesky(instruction: HloInstruction, operands: Operands) -> Value:
    """Return the factor in the lower (or upper) triangle, zeros in the other; NaN if it does not exist."""
    x = array_of(operands[0])
    factor, _ = cholesky(widen(x), lower=instruction.attrs_as(CholeskyAttrs).lower)
    return narrow(factor, x.dtype)


def cholesky(x: NDArray, *, lower: bool) -> tuple[NDArray, NDArray]:
    """Return factors of [.., n, n], and for each matrix 0 or (as in LAPACK's info) 1 if it is not positive definite.

    Reads the ``lower`` (or upper) triangle only. x = L L^H, or U^H U.
    """
    a = np.tril(x if lower else _adjoint(x))
    factor = _cholesky_by_columns(a)
    # A pivot that is not positive ends LAPACK's factorization too, even if only a later column
    # shows it.
    pivots = np.diagonal(factor, axis1=-2, axis2=-1).real
    failed = np.asarray(np.isnan(factor).any(axis=(-2, -1)) | ~(pivots > 0).all(axis=-1))
    factor[failed] = np.nan
    return (factor if lower else _adjoint(factor)), failed.astype(np.int32)


def _cholesky_by_columns(a: NDArray) -> NDArray:
    """Factorize left-looking, all matrices of the batch at once; NaN appears if a pivot is negative.

    The operations are those of the usual LAPACK and BLAS in their order (pivots' dot products in f64, the column scaled
    by the pivot's reciprocal), so that small factorizations agree with XLA's to the last bit: programs return
    residuals.
    """
    factor = np.zeros_like(a)
    wide = np.result_type(a.dtype, np.float64)
    for j in range(a.shape[-1]):
        row = np.conj(factor[..., j, :j])
        squares = np.sum(np.abs(row.astype(wide)) ** 2, axis=-1).astype(a.real.dtype)
        pivot = np.sqrt(a[..., j, j].real - squares)
        products = np.sum(factor[..., j + 1 :, :j] * row[..., None, :], axis=-1)
        factor[..., j, j] = pivot
        factor[..., j + 1 :, j] = (a[..., j + 1 :, j] - products) * (1 / pivot)[..., None]
    return factor


def _adjoint(x: NDArray) -> NDArray:
    return np.conj(np.swapaxes(x, -1, -2))


@evaluates(Opcode.TRIANGULAR_SOLVE)
def evaluate_triangular_solve(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(TriangularSolveAttrs)
    a, b = arrays_of(operands)
    solution = triangular_solve(widen(a), widen(b), attrs)
    return narrow(solution, b.dtype)


def triangular_solve(a: NDArray, b: NDArray, attrs: TriangularSolveAttrs) -> NDArray:
    """Return x with op(a) x = b, or x op(a) = b. a: [.., n, n] of which one triangle is read; b: [.., n, m] or [.., m,
    n].
    """
    a = np.tril(a) if attrs.lower else np.triu(a)
    lower = attrs.lower
    if attrs.transpose_a != "NO_TRANSPOSE":
        a, lower = np.swapaxes(a, -1, -2), not lower
        a = np.conj(a) if attrs.transpose_a == "ADJOINT" else a
    if not attrs.left_side:  # x op(a) = b  <=>  op(a)^T x^T = b^T
        a, lower, b = np.swapaxes(a, -1, -2), not lower, np.swapaxes(b, -1, -2)
    x = _substitute(a, b, lower, attrs.unit_diagonal)
    return x if attrs.left_side else np.swapaxes(x, -1, -2)


def _substitute(a: NDArray, b: NDArray, lower: bool, unit: bool) -> NDArray:
    """Substitute forward (lower) or backward in blocks of rows; between blocks the work is matrix products.

    Diagonals enter as reciprocals, as in BLAS; see ``_cholesky_by_columns`` for the reason.
    """
    n = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    blocks = [(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
    for start, stop in blocks if lower else reversed(blocks):
        known = slice(0, start) if lower else slice(stop, n)
        x[..., start:stop, :] -= a[..., start:stop, known] @ x[..., known, :]
        rows = range(start, stop) if lower else range(stop - 1, start - 1, -1)
        for row in rows:
            if not unit:
                x[..., row, :] = _over(x[..., row, :], a[..., row, row, None])
            rest = slice(row + 1, stop) if lower else slice(start, row)
            x[..., rest, :] -= a[..., rest, row, None] * x[..., None, row, :]
    return x


def _over(x: NDArray, pivot: NDArray) -> NDArray:
    """Return x times the pivot's reciprocal; divide if that is infinite for a nonzero (denormal) pivot."""
    reciprocal = 1 / pivot
    if np.isfinite(reciprocal).all():
        return np.asarray(x * reciprocal)
    quotient = divide(x, pivot) if x.dtype.kind == "c" else x / pivot
    return np.where(np.isfinite(reciprocal), x * reciprocal, quotient)


@evaluates(Opcode.FFT)
def evaluate_fft(instruction: HloInstruction, operands: Operands) -> Value:
    """Transform over the last len(fft_length) dimensions; inverse transforms divide by the number of points."""
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
