"""LU and QR decompositions of batches of small matrices by cuBLAS. cuSOLVER would need one call for each matrix."""

from __future__ import annotations

from functools import partial

import numpy as np

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.gemm import Cublas
from runtime.gpu.cuda.triangular_solve import LETTERS, addresses_of, keeping
from runtime.gpu.driver import Enqueue, GpuStream
from runtime.gpu.libraries.linalg_work import SolverFunction, SolverWork, batch_of


def is_batched(work: SolverWork) -> bool:
    """Return whether one call of cuBLAS computes ``work`` for its entire batch."""
    return work.call.is_batched_by_cublas(*batch_of(work.arrays[0]))


def load_batched_factors(work: SolverWork, cublas: Cublas, captures: CaptureLock) -> Enqueue:
    """Bind ``work``, for which ``is_batched`` is true. The call holds the lock ``captures``, since it may allocate."""
    run = _bound(work, cublas)

    def enqueue(stream: GpuStream) -> None:
        with captures:  # the functions may allocate
            run(stream)

    return enqueue


def _bound(work: SolverWork, cublas: Cublas) -> Enqueue:
    matrices, second, infos = work.arrays
    count, rows, columns = batch_of(matrices)
    kind = matrices.view.element_type
    letter, item = LETTERS[kind], kind.byte_size
    a = cublas.written(addresses_of(matrices.first, count, rows * columns * item))
    if work.call.function is SolverFunction.GETRF:
        arguments = (rows, a.address, rows, second.first, infos.first, count)
        call = partial(cublas.call, f"cublas{letter}getrfBatched", *arguments)
        return cublas.in_order([keeping(call, a)])
    taus = cublas.written(addresses_of(second.first, count, min(rows, columns) * item))
    info = np.zeros(1, np.int32)  # in host memory; it reports only invalid arguments
    pointers = (a.address, rows, taus.address, info.ctypes.data)
    call = partial(cublas.call, f"cublas{letter}geqrfBatched", rows, columns, *pointers, count)
    return cublas.in_order([keeping(call, a, taus, info)])
