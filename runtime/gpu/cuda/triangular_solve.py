"""Solutions of triangular systems by cuBLAS: trsm for each matrix, or trsmBatched for many or small matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from runtime.gpu.cuda.gemm import Cublas
from runtime.gpu.driver import Enqueue, GpuBlock
from runtime.gpu.libraries.linalg_work import TriangularSolveWork, batch_of
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Element type -> letter in the names of BLAS and LAPACK functions.
LETTERS = {
    PrimitiveType.F32: "S",
    PrimitiveType.F64: "D",
    PrimitiveType.C64: "C",
    PrimitiveType.C128: "Z",
}
# Constants of cublas_api.h.
_LEFT, _RIGHT = 0, 1
LOWER, UPPER = 0, 1
_OPS = {"N": 0, "T": 1, "C": 2}
_NOT_UNIT, _UNIT = 0, 1
#: Batches of at most _FEW matrices with more than _BATCHED_ROWS rows are solved by one trsm for each matrix.
_BATCHED_ROWS, _FEW = 256, 16


def addresses_of(first: int, count: int, num_bytes: int) -> NDArray:
    """Return the addresses (u64[count]) of contiguous matrices of ``num_bytes`` each, the first at ``first``."""
    return first + num_bytes * np.arange(count, dtype=np.uint64)


def load_triangular_solve(work: TriangularSolveWork, cublas: Cublas) -> Enqueue:
    """Bind ``work`` to the addresses of its arrays, with functions of ``cublas``."""
    kind, solve = work.sides.view.element_type, work.solve
    count, rows, columns = batch_of(work.sides)
    size = work.triangles.view.dims[-1]
    letter, item = LETTERS[kind], kind.byte_size
    one = np.array(1, kind.numpy)
    arguments = (
        _LEFT if solve.left else _RIGHT,
        LOWER if solve.lower else UPPER,
        _OPS[solve.op],
        _UNIT if solve.unit else _NOT_UNIT,
        rows,
        columns,
        one.ctypes.data,
    )
    triangles = addresses_of(work.triangles.first, count, size * size * item)
    sides = addresses_of(work.sides.first, count, rows * columns * item)
    if count > 1 and (size <= _BATCHED_ROWS or count > _FEW):
        a, b = cublas.written(triangles), cublas.written(sides)
        batched = (*arguments, a.address, size, b.address, rows, count)
        return cublas.in_order(
            [keeping(partial(cublas.call, f"cublas{letter}trsmBatched", *batched), one, a, b)]
        )
    return cublas.in_order(
        [
            keeping(
                partial(cublas.call, f"cublas{letter}trsm_v2", *arguments, a, size, b, rows), one
            )
            for a, b in zip(triangles.tolist(), sides.tolist(), strict=True)
        ]
    )


def keeping(call: Callable[[], None], *retained: NDArray | GpuBlock) -> Callable[[], None]:
    """Return a function that runs ``call`` and keeps the memory ``retained``, which its arguments point to, alive."""

    def run(_: object = retained) -> None:
        call()

    return run
