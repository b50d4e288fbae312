"""Matrix products by cuBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.blas_api import call, load_cublas
from runtime.gpu.cuda.blas_types import COMPUTE, COMPUTE_32F_FAST_TF32, TYPES
from runtime.gpu.cuda.handles import destroy_after
from runtime.gpu.cuda.tuned_products import TunedProducts
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.libraries.gemm import F8_OPERANDS, GemmCall
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork
from spmd.literal import NDArray

#: Size of cuBLAS's workspace that NVIDIA recommends for Hopper. Without a workspace from the caller, cuBLAS allocates
#: memory during captures.
_WORKSPACE_BYTES = 32 << 20

# Numbers of cublas_api.h for which CuPy has no names.
_NO_NARROW_PARTIAL_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_AS_IT_IS, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
_POINTER_BYTES = 8

#: Addresses of a, b and c.
Addresses: TypeAlias = tuple[int, int, int]


class Cublas:
    """cuBLAS handle of one device, used by one stream at a time."""

    def __init__(
        self,
        allocate: Callable[[int], GpuBlock],
        write: Callable[[int, NDArray], None],
        captures: CaptureLock,
        device: str = "",
        tuning: Tuning | None = None,
    ) -> None:
        """Create the handle. Raises CublasError if cuBLAS is not found or fails.

        allocate: allocates device memory. write: copies a host array to a device address, synchronously. captures:
        capture lock of the GPU. device: name of the GPU, which is part of the keys of ``tuning``.
        """
        self._allocate, self._write = allocate, write
        self._library = load_cublas()
        handle = ctypes.c_void_p()
        call(self._library, "cublasCreate_v2", ctypes.byref(handle))
        self._handle = handle
        destroy_after(self, captures, partial(self._library.cublasDestroy_v2, handle))
        # Partial sums of narrow floats stay f32 (docs/numerics.md).
        call(self._library, "cublasSetMathMode", handle, _NO_NARROW_PARTIAL_SUMS)
        self._workspace = allocate(_WORKSPACE_BYTES)
        self._stream = -1
        self._device, self._tuning = device, tuning

    @cached_property
    def _lt(self) -> TunedProducts:
        """Products by cuBLASLt: with f8 operands, with epilogues, and those whose fastest algorithm was measured."""
        tuning = self._tuning or Tuning(None, measures=False)
        room = self._workspace.address, _WORKSPACE_BYTES
        return TunedProducts(tuning, self._device, room, self._allocate, self._write)

    def load(self, work: GemmWork) -> Enqueue:
        """Bind ``work`` to the addresses of its arrays."""
        return self.in_order([self._call(work, one) for one in work.calls])

    def in_order(self, calls: Sequence[Callable[[], None]]) -> Enqueue:
        """Return a function that sets the handle's stream to its argument and then runs ``calls`` in order."""

        def enqueue(stream: GpuStream) -> None:
            self._go_on(stream.ptr)
            for one in calls:
                one()

        return enqueue

    def call(self, function: str, *arguments: object) -> None:
        """Call a cuBLAS function whose first argument is the handle. Raises CublasError if it fails."""
        call(self._library, function, self._handle, *arguments)

    def written(self, array: NDArray) -> GpuBlock:
        """Allocate device memory, copy ``array`` to it, and return it."""
        block = self._allocate(array.nbytes)
        self._write(block.address, array)
        return block

    def _go_on(self, stream: int) -> None:
        """Set the handle's stream to the CUDA stream with handle ``stream``, and the workspace, which that resets."""
        if stream == self._stream:
            return
        self._stream = stream
        call(self._library, "cublasSetStream_v2", self._handle, stream)
        # Setting the stream resets the workspace.
        call(
            self._library,
            "cublasSetWorkspace_v2",
            self._handle,
            self._workspace.address,
            _WORKSPACE_BYTES,
        )

    def _call(self, work: GemmWork, gemm: GemmCall) -> Callable[[], None]:
        first, second = (work.rhs, work.lhs) if gemm.swapped else (work.lhs, work.rhs)
        views = (first, second, work.result)
        if gemm.offsets:
            return self._by_pointers(gemm, self._pointers(views, gemm))
        a, b, c = (
            view.first + matrix.offset
            for view, matrix in zip(views, (gemm.a, gemm.b, gemm.c), strict=True)
        )
        run = None
        if gemm.a_kind in F8_OPERANDS or gemm.epilogue is not None:
            addend, bias, aux = (
                0 if view is None else view.first for view in (work.addend, work.bias, work.aux)
            )
            scales = tuple(view.first for view in work.scales)
            run = self._lt.load_only_here(gemm, (a, b, c), addend, bias, aux, scales)
        elif self._tuning is not None:
            run = self._lt.load(gemm, (a, b, c), partial(self._on_stream, gemm))
            self._stream = -1  # measurements have set the handle to other streams
        return self._strided(gemm, (a, b, c)) if run is None else partial(self._on_own, run)

    def _on_own(self, run: Callable[[int], None]) -> None:
        run(self._stream)

    def _on_stream(self, gemm: GemmCall, addresses: Addresses) -> Callable[[int], None]:
        """Return a function of a CUDA stream's handle that computes ``gemm`` there on arrays at ``addresses``."""
        run = self._strided(gemm, addresses)

        def on_stream(stream: int) -> None:
            self._go_on(stream)
            run()

        return on_stream

    def _strided(self, gemm: GemmCall, addresses: Addresses) -> Callable[[], None]:
        a, b, c = (
            (address, TYPES[kind], matrix.leading, matrix.step)
            for address, kind, matrix in zip(
                addresses,
                (gemm.a_kind, gemm.b_kind, gemm.result),
                (gemm.a, gemm.b, gemm.c),
                strict=True,
            )
        )
        return self._bound("cublasGemmStridedBatchedEx", gemm, (a, b, c), None)

    def _by_pointers(self, gemm: GemmCall, pointers: GpuBlock) -> Callable[[], None]:
        """Return the call for matrices whose addresses ``pointers`` holds: all of a, then all of b, then all of c."""
        a, b, c = (
            (pointers.address + n * gemm.count * _POINTER_BYTES, TYPES[kind], matrix.leading)
            for n, (kind, matrix) in enumerate(
                zip(
                    (gemm.a_kind, gemm.b_kind, gemm.result),
                    (gemm.a, gemm.b, gemm.c),
                    strict=True,
                )
            )
        )
        return self._bound("cublasGemmBatchedEx", gemm, (a, b, c), pointers)

    def _bound(
        self,
        function: str,
        gemm: GemmCall,
        matrices: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        retained: GpuBlock | None,
    ) -> Callable[[], None]:
        """Return the call of ``function``. matrices: its arguments for each of a, b and c.

        retained: memory that the call reads, kept alive as long as the returned function.
        """
        one, zero = (np.array(value, gemm.compute.numpy) for value in (1, 0))
        a, b, c = matrices
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
            COMPUTE_32F_FAST_TF32 if gemm.tf32 else COMPUTE[gemm.compute],
            _DEFAULT_ALGORITHM,
        )
        library = self._library

        def run(_: object = (one, zero, retained)) -> None:  # keeps the arguments' memory alive
            call(library, function, *arguments)

        return run

    def _pointers(self, views: Sequence[DeviceView], gemm: GemmCall) -> GpuBlock:
        """Return a device array with the addresses of all matrices of a, then of b, then of c."""
        firsts = np.array([view.first for view in views], np.uint64)
        return self.written(np.ascontiguousarray((np.array(gemm.offsets, np.uint64) + firsts).T))
