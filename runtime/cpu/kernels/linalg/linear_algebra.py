"""Cholesky factorizations and triangular systems, by LAPACK and BLAS called from native code, or by generated code."""

from __future__ import annotations

import math

import numpy as np

from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.linalg.linear_algebra_ir import (
    CHOLESKY,
    LEFT,
    LOWER,
    NOT_UNIT,
    RIGHT,
    SOLVE,
    TRANSPOSES,
    UNIT,
    UPPER,
    CholeskyRecord,
    CholeskyVariant,
    SolveRecord,
    SolveVariant,
    cholesky_code,
    solve_code,
)
from runtime.cpu.kernels.linalg.small_systems_ir import (
    MOST_ROWS,
    MatrixStrides,
    SmallSolveRecord,
    SmallSolveVariant,
    small_solve_code,
)
from runtime.cpu.kernels.linalg.small_systems_ir import SOLVE as SMALL_SOLVE
from runtime.cpu.kernels.native_call import NOTHING, in_order, native_call
from runtime.cpu.libraries.lapack import lapack_function, trsm_function
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.linalg import CholeskyKernel, TriangularSolveKernel
from spmd.literal import NDArray
from spmd.ops.attrs import TriangularSolveAttrs
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(CholeskyKernel)
def bind_cholesky(kernel: CholeskyKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of the operand, unless the result has its memory, and the factorization in place."""
    (source,), (factors, *infos) = arrays.operands, arrays.results
    if factors.size == 0:
        return in_order(*(copying(np.zeros((), np.int32), info) for info in infos))
    kind = PrimitiveType.from_numpy(factors.dtype)
    potrf = lapack_function("potrf", kind)
    assert potrf is not None, "it was asked for before"
    size = factors.shape[-1]
    small = is_small(kind, size)
    variant = CholeskyVariant(kind, kernel.lower, kernel.clears, bool(infos), small)
    record = CholeskyRecord(
        factors.ctypes.data,
        math.prod(factors.shape[:-2]),
        size,
        infos[0].ctypes.data if infos else 0,
    )
    call = native_call(
        cholesky_code(variant, potrf), CHOLESKY, record.to_array(), (factors, *infos)
    )
    return in_order(_placed(source, factors), call)


@CPU_KERNELS.binds(TriangularSolveKernel)
def bind_triangular_solve(kernel: TriangularSolveKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of the right sides, unless the result has their memory, and the solution in place."""
    (triangles, sides), (solutions,) = arrays.operands, arrays.results
    if solutions.size == 0:
        return NOTHING
    kind, attrs = PrimitiveType.from_numpy(solutions.dtype), kernel.attrs
    trsm = trsm_function(kind)
    assert trsm is not None, "it was asked for before"
    if is_small(kind, triangles.shape[-1]):
        return in_order(_placed(sides, solutions), _small_solve(attrs, kind, triangles, solutions))
    variant = SolveVariant(
        kind,
        LEFT if attrs.left_side else RIGHT,
        LOWER if attrs.lower else UPPER,
        TRANSPOSES[attrs.transpose_a],
        UNIT if attrs.unit_diagonal else NOT_UNIT,
    )
    record = SolveRecord(
        triangles.ctypes.data,
        solutions.ctypes.data,
        math.prod(solutions.shape[:-2]),
        triangles.shape[-1],
        *solutions.shape[-2:],
    )
    call = native_call(solve_code(variant, trsm), SOLVE, record.to_array(), (triangles, solutions))
    return in_order(_placed(sides, solutions), call)


def is_small(kind: PrimitiveType, size: int) -> bool:
    """Return whether generated code, not a library, computes systems of ``size`` rows of type ``kind``."""
    return size <= MOST_ROWS and not kind.is_complex


def _small_solve(
    attrs: TriangularSolveAttrs, kind: PrimitiveType, triangles: NDArray, solutions: NDArray
) -> Action:
    """Bind the solution of systems of a few rows in place of ``solutions``, which hold the right sides.

    x op(a) = b is solved as op(a)^T x^T = b^T, where transposing exchanges strides.
    """
    count = math.prod(solutions.shape[:-2])
    row, column = triangles.strides[-2:]
    down, along = solutions.strides[-2:]
    columns = solutions.shape[-1] if attrs.left_side else solutions.shape[-2]
    lower = attrs.lower
    if (attrs.transpose_a == "NO_TRANSPOSE") is not attrs.left_side:
        row, column, lower = column, row, not lower
    if not attrs.left_side:
        down, along = along, down
    variant = SmallSolveVariant(kind, lower, attrs.unit_diagonal, along == solutions.itemsize)
    record = SmallSolveRecord(
        triangles.ctypes.data,
        solutions.ctypes.data,
        count,
        triangles.shape[-1],
        columns,
        MatrixStrides(triangles.shape[-1] ** 2 * triangles.itemsize, row, column),
        MatrixStrides(math.prod(solutions.shape[-2:]) * solutions.itemsize, down, along),
    )
    return native_call(
        small_solve_code(variant), SMALL_SOLVE, record.to_array(), (triangles, solutions)
    )


def _placed(source: NDArray, target: NDArray) -> Action:
    """Bind target = source, or nothing if they are the same array."""
    here = (source.ctypes.data, source.strides) == (target.ctypes.data, target.strides)
    return NOTHING if here else copying(source, target)
