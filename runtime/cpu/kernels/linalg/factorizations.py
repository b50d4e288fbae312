"""LU, QR, eigenvalue and singular value decompositions by LAPACK, called from native code matrix by matrix.

LAPACK is column-major, so matrices are transposed into scratch, and back. The width of its integers depends on the
library's build; programs receive s32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.linalg.fortran_call import FortranCall
from runtime.cpu.kernels.native_call import in_order
from runtime.cpu.libraries.lapack import lapack_function
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.linalg import FactorizationKernel, Routine
from spmd.literal import NDArray
from spmd.shape import COMPLEX_PARTS, ArrayShape, PrimitiveType


def scratch_shapes(
    kernel: FactorizationKernel, operands: tuple[ArrayShape, ...], results: tuple[ArrayShape, ...]
) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays of ``kernel``.

    They are the column-major matrices (for gesdd also the two sets of singular vectors), the pivots of getrf, the
    infos, and the workspace of one call: elements, reals and integers.
    """
    shape = operands[0]
    kind, (m, n) = shape.element_type, shape.dims[-2:]
    count, least = math.prod(shape.dims[:-2]), min(m, n)
    function = lapack_function(kernel.routine.name_for(kind), kind)
    assert function is not None, "it was asked for before"
    index = PrimitiveType.S64 if function.index_bits == 64 else PrimitiveType.S32
    sizes = [m * n]
    if kernel.routine is Routine.GESDD:
        vectors = {"A": [m * m, n * n], "S": [m * least, least * n], "N": [1, 1]}
        sizes += vectors[kernel.flag]
    columns = [ArrayShape(kind, (count, size)) for size in sizes]
    if kernel.routine is Routine.GETRF:
        columns.append(ArrayShape(index, (count, least)))
    found = (*columns, ArrayShape(index, (count,)))
    room = [ArrayShape(each, (1,)) for each in (kind, COMPLEX_PARTS.get(kind, kind), index)]
    asked = _room_of(kernel, operands, results, (*found, *room))
    return (
        *found,
        *(ArrayShape(x.element_type, (n,)) for x, n in zip(room, asked, strict=True)),
    )


@lru_cache
def _room_of(
    kernel: FactorizationKernel,
    operands: tuple[ArrayShape, ...],
    results: tuple[ArrayShape, ...],
    scratch: tuple[ArrayShape, ...],
) -> tuple[int, int, int]:
    """Return the workspace sizes (elements, reals, integers) that the routine reports, which jaxlib uses as well.

    The size decides on the routine's blocks, and therefore on rounding and on the signs of vectors.
    """
    every = [
        tuple(np.empty(x.dims, x.element_type.numpy) for x in shapes)
        for shapes in (operands, results, scratch)
    ]
    arrays = KernelArrays(*every)
    *_, work, reals, integers = arrays.scratch
    for array in (work, reals, integers):
        array.fill(1)
    kind = operands[0].element_type
    function = lapack_function(kernel.routine.name_for(kind), kind)
    assert function is not None, "it was asked for before"
    call = FortranCall(function, 1, asks=True)
    _BINDERS[kernel.routine](kernel, arrays, call)
    call.ask()
    if kernel.routine is Routine.GESDD:  # which does not report these
        m, n = operands[0].dims[-2:]
        least, most = min(m, n), max(m, n)
        wanted = max(5 * least * least + 5 * least, 2 * most * least + 2 * least * least + least)
        return int(work[0].real), wanted if kind.is_complex else 1, 8 * least
    return int(work[0].real), int(reals[0]), int(integers[0])


@CPU_KERNELS.binds(FactorizationKernel)
def bind_factorization(kernel: FactorizationKernel, arrays: KernelArrays) -> Action:
    """Bind a transposing copy of the operand, the calls of the routine, and the copies of its results."""
    operand = arrays.operands[0]
    kind = PrimitiveType.from_numpy(operand.dtype)
    function = lapack_function(kernel.routine.name_for(kind), kind)
    assert function is not None, "it was asked for before"
    call = FortranCall(function, math.prod(operand.shape[:-2]))
    columns = _by_columns(arrays.scratch[0], operand.shape)
    after = _BINDERS[kernel.routine](kernel, arrays, call)
    return in_order(copying(operand, columns), call.action(), *after)


def _by_columns(scratch: NDArray, dims: Sequence[int]) -> NDArray:
    """Return column-major matrices of sizes ``dims`` in ``scratch``."""
    *batch, m, n = dims
    return scratch.reshape(-1)[: math.prod(dims)].reshape(*batch, n, m).swapaxes(-1, -2)


def _getrf(_: FactorizationKernel, arrays: KernelArrays, call: FortranCall) -> list[Action]:
    """Add the arguments of getrf to ``call``; return the copies and conversions of results that follow."""
    columns, pivots, infos, *_room = arrays.scratch
    lu, *others = arrays.results
    m, n = lu.shape[-2:]
    call.sizes(m, n)
    call.each(columns)
    call.sizes(m)
    call.each(pivots)
    call.each(infos)
    numbers = [pivots.reshape(others[0].shape), infos.reshape(others[1].shape)]
    converted = [converting(x, y) for x, y in zip(numbers, others, strict=True)]
    return [copying(_by_columns(columns, lu.shape), lu), *converted]


def _geqrf(_: FactorizationKernel, arrays: KernelArrays, call: FortranCall) -> list[Action]:
    """Add the arguments of geqrf to ``call``; return the copy of the result that follows."""
    qr, tau = arrays.results
    return _reflectors(qr, tau, qr.shape[-2:], arrays, call)


def _orgqr(_: FactorizationKernel, arrays: KernelArrays, call: FortranCall) -> list[Action]:
    """Add the arguments of orgqr to ``call``; return the copy of the result that follows."""
    (q,), (_qr, tau) = arrays.results, arrays.operands
    return _reflectors(q, tau, (*q.shape[-2:], tau.shape[-1]), arrays, call)


def _reflectors(
    result: NDArray, tau: NDArray, sizes: Sequence[int], arrays: KernelArrays, call: FortranCall
) -> list[Action]:
    """Add the arguments of a routine with reflectors' factors ``tau`` to ``call``.

    Returns the copy of the matrices to ``result`` that follows.
    """
    columns, infos, work, *_room = arrays.scratch
    call.sizes(*sizes)
    call.each(columns)
    call.sizes(sizes[0])
    call.each(tau)
    call.room(work)
    call.each(infos)
    return [copying(_by_columns(columns, result.shape), result)]


def _syevd(kernel: FactorizationKernel, arrays: KernelArrays, call: FortranCall) -> list[Action]:
    """Add the arguments of syevd to ``call``; return the copies and conversions of results that follow."""
    columns, infos, work, reals, integers = arrays.scratch
    vectors, values, info = arrays.results
    n = vectors.shape[-1]
    call.flag("V")
    call.flag(kernel.flag)
    call.sizes(n)
    call.each(columns)
    call.sizes(n)
    call.each(values)
    call.room(work)
    if vectors.dtype.kind == "c":
        call.room(reals)
    call.room(integers)
    call.each(infos)
    back = copying(_by_columns(columns, vectors.shape), vectors)
    return [back, converting(infos.reshape(info.shape), info)]


def _gesdd(kernel: FactorizationKernel, arrays: KernelArrays, call: FortranCall) -> list[Action]:
    """Add the arguments of gesdd to ``call``; return the copies and conversions of results that follow.

    The first result is the operand, because LAPACK leaves nothing useful in the matrices.
    """
    columns, left, right, infos, work, reals, integers = arrays.scratch
    a, values, u, vh, info = arrays.results
    m, n = a.shape[-2:]
    call.flag(kernel.flag)
    call.sizes(m, n)
    call.each(columns)
    call.sizes(m)
    call.each(values)
    call.each(left)
    call.sizes(m)
    call.each(right)
    call.sizes(vh.shape[-2])
    call.room(work)
    if a.dtype.kind == "c":
        call.work(reals)
    call.work(integers)
    call.each(infos)
    if kernel.flag == "N":
        zero = np.zeros((), a.dtype)
        vectors = [copying(np.broadcast_to(zero, x.shape), x) for x in (u, vh)]
    else:
        vectors = [
            copying(_by_columns(left, u.shape), u),
            copying(_by_columns(right, vh.shape), vh),
        ]
    return [
        copying(arrays.operands[0], a),
        *vectors,
        converting(infos.reshape(info.shape), info),
    ]


_BINDERS = {
    Routine.GETRF: _getrf,
    Routine.GEQRF: _geqrf,
    Routine.ORGQR: _orgqr,
    Routine.SYEVD: _syevd,
    Routine.GESDD: _gesdd,
}
