"""Tridiagonal systems by LAPACK's gtsv, called from native code system by system."""

from __future__ import annotations

import math

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.linalg.fortran_call import FortranCall
from runtime.cpu.kernels.native_call import in_order
from runtime.cpu.libraries.lapack import lapack_function
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.linalg import TridiagonalSolveKernel
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(TridiagonalSolveKernel)
def bind_tridiagonal_solve(_: TridiagonalSolveKernel, arrays: KernelArrays) -> Action:
    """Bind copies of the operands, which gtsv overwrites, its calls, and the copies of its results."""
    (*_diagonals, sides), (*overwritten, solutions, info) = arrays.operands, arrays.results
    columns, infos = arrays.scratch
    function = lapack_function("gtsv", PrimitiveType.from_numpy(sides.dtype))
    assert function is not None, "it was asked for before"
    n, count = sides.shape[-2:]
    call = FortranCall(function, math.prod(sides.shape[:-2]))
    call.sizes(n, count)
    below, diagonal, above = overwritten
    call.each(below, first=1)
    for array in (diagonal, above, columns):
        call.each(array)
    call.sizes(n)
    call.each(infos)
    by_columns = columns.swapaxes(-1, -2)
    copied = zip((*arrays.operands[:3], sides), (*overwritten, by_columns), strict=True)
    return in_order(
        *(copying(source, target) for source, target in copied),
        call.action(),
        copying(by_columns, solutions),
        converting(infos.reshape(info.shape), info),
    )
