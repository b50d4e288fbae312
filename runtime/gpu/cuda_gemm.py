"""Matrix products through cuBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas

from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.gemm import GemmCall
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork
from spmd.shape import PrimitiveType

#: What NVIDIA recommends for Hopper. Without memory of its own cuBLAS allocates in a capture.
_WORKSPACE_BYTES = 32 << 20

#: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, by its number in cublas_api.h.
_NO_NARROW_PARTIAL_SUMS = 16

_TYPES = {
    PrimitiveType.F32: runtime.CUDA_R_32F,
    PrimitiveType.F64: runtime.CUDA_R_64F,
    PrimitiveType.F16: runtime.CUDA_R_16F,
    PrimitiveType.BF16: 14,  # CUDA_R_16BF, by its number in library_types.h
    PrimitiveType.C64: runtime.CUDA_C_32F,
    PrimitiveType.C128: runtime.CUDA_C_64F,
}
_COMPUTE = {
    PrimitiveType.F32: cublas.CUBLAS_COMPUTE_32F,
    PrimitiveType.F64: cublas.CUBLAS_COMPUTE_64F,
    PrimitiveType.C64: cublas.CUBLAS_COMPUTE_32F,
    PrimitiveType.C128: cublas.CUBLAS_COMPUTE_64F,
}


class Cublas:
    """One handle, for one stream at a time."""

    def __init__(self, allocate: Callable[[int], GpuBlock]) -> None:
        self._handle = cublas.create()
        cublas.setPointerMode(self._handle, cublas.CUBLAS_POINTER_MODE_HOST)
        # Partial sums of narrow floats stay f32 (docs/numerics.md).
        cublas.setMathMode(self._handle, _NO_NARROW_PARTIAL_SUMS)
        self._workspace = allocate(_WORKSPACE_BYTES)
        self._stream = -1

    def load(self, work: GemmWork) -> Enqueue:
        calls = [self._call(work, call) for call in work.calls]

        def enqueue(stream: GpuStream) -> None:
            self._go_on(stream)
            for call in calls:
                call()

        return enqueue

    def _go_on(self, stream: GpuStream) -> None:
        if stream.ptr == self._stream:
            return
        self._stream = stream.ptr
        cublas.setStream(self._handle, stream.ptr)
        _set_workspace(
            self._handle, self._workspace.address, _WORKSPACE_BYTES
        )  # forgotten by setStream

    def _call(self, work: GemmWork, call: GemmCall) -> Callable[[], None]:
        one, zero = (np.array(value, call.compute.numpy) for value in (1, 0))
        first, second = (work.rhs, work.lhs) if call.swapped else (work.lhs, work.rhs)
        operand, result = _TYPES[call.operands], _TYPES[call.result]
        arguments = (
            self._handle,
            _operation(call.a.transposed),
            _operation(call.b.transposed),
            call.m,
            call.n,
            call.k,
            one.ctypes.data,
            _at(first, call.a.offset),
            operand,
            call.a.leading,
            call.a.step,
            _at(second, call.b.offset),
            operand,
            call.b.leading,
            call.b.step,
            zero.ctypes.data,
            _at(work.result, call.c.offset),
            result,
            call.c.leading,
            call.c.step,
            call.count,
            _COMPUTE[call.compute],
            cublas.CUBLAS_GEMM_DEFAULT,
        )

        def run(_: object = (one, zero)) -> None:  # whose addresses are among the arguments
            cublas.gemmStridedBatchedEx(*arguments)

        return run


def _operation(transposed: bool) -> int:
    return int(cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N)


def _at(view: DeviceView, offset: int) -> int:
    return view.first + offset


def _set_workspace(handle: int, address: int, num_bytes: int) -> None:
    """CuPy has no name for it: asked of the library that it has loaded."""
    for name in ("libcublas.so.13", "libcublas.so.12"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.cublasSetWorkspace_v2(
            ctypes.c_void_p(handle), ctypes.c_void_p(address), ctypes.c_size_t(num_bytes)
        )
        return
