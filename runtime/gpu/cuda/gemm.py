"""Matrix products through cuBLAS."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from cupy.cuda import runtime

from runtime.gpu.cuda.blas_api import call, load_cublas
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.gemm import GemmCall, GemmMatrix
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Size that NVIDIA recommends for Hopper. Without its own workspace, cuBLAS allocates in a capture.
_WORKSPACE_BYTES = 32 << 20

# Numbers of cublas_api.h and library_types.h for which CuPy has no names.
_NO_NARROW_PARTIAL_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_AS_IT_IS, _TRANSPOSED = 0, 1
_COMPUTE_32F, _COMPUTE_64F = 68, 70
_COMPUTE_32F_FAST_TF32 = 77
_DEFAULT_ALGORITHM = -1
_BF16 = 14
_POINTER_BYTES = 8

_TYPES = {
    PrimitiveType.F32: runtime.CUDA_R_32F,
    PrimitiveType.F64: runtime.CUDA_R_64F,
    PrimitiveType.F16: runtime.CUDA_R_16F,
    PrimitiveType.BF16: _BF16,
    PrimitiveType.C64: runtime.CUDA_C_32F,
    PrimitiveType.C128: runtime.CUDA_C_64F,
}
_COMPUTE = {
    PrimitiveType.F32: _COMPUTE_32F,
    PrimitiveType.F64: _COMPUTE_64F,
    PrimitiveType.C64: _COMPUTE_32F,
    PrimitiveType.C128: _COMPUTE_64F,
}


class Cublas:
    """One cuBLAS handle, used by one stream at a time."""

    def __init__(
        self, allocate: Callable[[int], GpuBlock], write: Callable[[int, NDArray], None]
    ) -> None:
        """``write``: copies an array to an address of the device, synchronously."""
        self._allocate, self._write = allocate, write
        self._library = load_cublas()
        handle = ctypes.c_void_p()
        call(self._library, "cublasCreate_v2", ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, self._library.cublasDestroy_v2, handle)
        # Partial sums of narrow floats stay f32 (docs/numerics.md).
        call(self._library, "cublasSetMathMode", handle, _NO_NARROW_PARTIAL_SUMS)
        self._workspace = allocate(_WORKSPACE_BYTES)
        self._stream = -1

    def load(self, work: GemmWork) -> Enqueue:
        return self.in_order([self._call(work, one) for one in work.calls])

    def in_order(self, calls: Sequence[Callable[[], None]]) -> Enqueue:
        """Return ``calls`` of the handle's functions, on the stream that is given."""

        def enqueue(stream: GpuStream) -> None:
            self._go_on(stream)
            for one in calls:
                one()

        return enqueue

    def call(self, function: str, *arguments: object) -> None:
        """Call a function with the handle. Raises CublasError if it fails."""
        call(self._library, function, self._handle, *arguments)

    def written(self, array: NDArray) -> GpuBlock:
        """Return memory of the device with a copy of ``array``."""
        block = self._allocate(array.nbytes)
        self._write(block.address, array)
        return block

    def _go_on(self, stream: GpuStream) -> None:
        if stream.ptr == self._stream:
            return
        self._stream = stream.ptr
        call(self._library, "cublasSetStream_v2", self._handle, stream.ptr)
        # Setting the stream resets the workspace.
        call(
            self._library,
            "cublasSetWorkspace_v2",
            self._handle,
            self._workspace.address,
            _WORKSPACE_BYTES,
        )

    def _call(self, work: GemmWork, gemm: GemmCall) -> Callable[[], None]:
        one, zero = (np.array(value, gemm.compute.numpy) for value in (1, 0))
        first, second = (work.rhs, work.lhs) if gemm.swapped else (work.lhs, work.rhs)
        views, matrices = (first, second, work.result), (gemm.a, gemm.b, gemm.c)
        types = (_TYPES[gemm.operands], _TYPES[gemm.operands], _TYPES[gemm.result])
        function, kept = "cublasGemmStridedBatchedEx", None
        a, b, c = map(_matrix, views, matrices, types)
        if gemm.places:
            function, kept = "cublasGemmBatchedEx", self._pointers(views, gemm)
            rows = [kept.address + n * gemm.count * _POINTER_BYTES for n in range(3)]
            a, b, c = (
                (row, kind, matrix.leading)
                for row, kind, matrix in zip(rows, types, matrices, strict=True)
            )
        arguments = (
            self._handle,
            _TRANSPOSED if gemm.a.transposed else _AS_IT_IS,
            _TRANSPOSED if gemm.b.transposed else _AS_IT_IS,
            gemm.m,
            gemm.n,
            gemm.k,
            one.ctypes.data,
            *a,
            *b,
            zero.ctypes.data,
            *c,
            gemm.count,
            _COMPUTE_32F_FAST_TF32 if gemm.tf32 else _COMPUTE[gemm.compute],
            _DEFAULT_ALGORITHM,
        )
        library = self._library

        def run(_: object = (one, zero, kept)) -> None:  # keeps the arguments' memory alive
            call(library, function, *arguments)

        return run

    def _pointers(self, views: Sequence[DeviceView], gemm: GemmCall) -> GpuBlock:
        """Return a device array with the addresses of all of a, then of all of b, then of all of c."""
        firsts = np.array([view.first for view in views], np.uint64)
        return self.written(np.ascontiguousarray((np.array(gemm.places, np.uint64) + firsts).T))


def _matrix(view: DeviceView, matrix: GemmMatrix, kind: int) -> tuple[int, ...]:
    return view.first + matrix.offset, kind, matrix.leading, matrix.step
