"""Matrix products by cuBLASLt with the algorithm that was measured to be the fastest on this GPU."""

from __future__ import annotations

import ctypes
import math
import statistics
import weakref
from collections.abc import Callable
from functools import partial

import cupy
import numpy as np
from cupy.cuda import runtime

from runtime.gpu.cuda.blas_api import CublasError
from runtime.gpu.cuda.lt_api import call, load_cublas_lt
from runtime.gpu.cuda.lt_product import LtProduct
from runtime.gpu.driver import GpuBlock
from runtime.gpu.libraries.gemm import CallEpilogue, GemmCall, GemmMatrix, flops
from runtime.gpu.libraries.tuning import Tuning
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Products of fewer operations are not tuned, since they take less time than their launch.
_LEAST_FLOPS = 1 << 28
#: Timed calls of an algorithm after one warm-up call; bytes of random numbers, which fill operands by repetition.
_SAMPLES, _PATTERN = 5, 1 << 20
#: An algorithm is used only if it takes less than this fraction of the time of cuBLAS's default.
_GAIN = 0.99
_MOST_ALIGNMENT = 256

#: Function of a CUDA stream's handle that enqueues a product there.
OnStream = Callable[[int], None]


class TunedProducts:
    """cuBLASLt handle of one device, used by one stream at a time. It shares the workspace of cuBLAS."""

    def __init__(
        self,
        tuning: Tuning,
        device: str,
        workspace: tuple[int, int],
        allocate: Callable[[int], GpuBlock],
        write: Callable[[int, NDArray], None],
    ) -> None:
        """Create the handle. Raises CublasError if cuBLASLt is not found or fails.

        device: name of the GPU, which is part of the keys of ``tuning``. workspace: its address and size in bytes.
        allocate: allocates device memory. write: copies a host array to a device address, synchronously.
        """
        self._tuning, self._workspace = tuning, workspace
        self._allocate, self._write = allocate, write
        self._library = load_cublas_lt()
        self._named = f"{device}, cuBLASLt {self._library.cublasLtGetVersion()}"
        handle = ctypes.c_void_p()
        call(self._library, "cublasLtCreate", ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, self._library.cublasLtDestroy, handle)

    def load(
        self,
        gemm: GemmCall,
        addresses: tuple[int, int, int],
        default: Callable[[tuple[int, int, int]], OnStream],
    ) -> OnStream | None:
        """Return the call of ``gemm`` on a, b and c at ``addresses``, or None if cuBLAS's default should compute it.

        default: returns cuBLAS's call of ``gemm`` on a, b and c at other addresses, for measurements.
        """
        if gemm.offsets or flops(gemm) < _LEAST_FLOPS:
            return None
        try:
            product, key = self._product(gemm, addresses)
            choice = self._tuning.choice(key, partial(self._fastest, gemm, product, default))
        except CublasError:
            return None  # the default has no such limits
        if not choice or not product.accepts(choice, self._workspace[1]):
            return None
        return product.bound(addresses, choice, *self._workspace)

    def load_only_here(
        self,
        gemm: GemmCall,
        addresses: tuple[int, int, int],
        addend: int = 0,
        bias: int = 0,
        aux: int = 0,
        scales: tuple[int, ...] = (),
    ) -> OnStream:
        """Return the call of ``gemm``, which has f8 operands or an epilogue, on a, b and c at ``addresses``.

        cuBLAS does not compute such products. addend, bias, aux: addresses of the arrays of the epilogue; 0 if it has
        none. scales: addresses of its numbers. Raises CublasError if cuBLASLt has no algorithm for the product.
        """
        product, key = self._product(gemm, addresses, addend, bias, aux, scales)
        choice = None
        if flops(gemm) >= _LEAST_FLOPS:
            choice = self._tuning.choice(key, partial(self._fastest, gemm, product, None, bias))
        if not choice or not product.accepts(choice, self._workspace[1]):
            choice = next(product.candidates(self._workspace[1]), None)
        if choice is None:
            message = f"cuBLASLt has no algorithm for {_described(gemm)}"
            if gemm.epilogue is not None:
                message += "; with SPMD_GPU_EPILOGUES=off, kernels compute what follows products"
            raise CublasError(message)
        return product.bound(addresses, choice, *self._workspace, addend)

    def _product(
        self,
        gemm: GemmCall,
        addresses: tuple[int, int, int],
        addend: int = 0,
        bias: int = 0,
        aux: int = 0,
        scales: tuple[int, ...] = (),
    ) -> tuple[LtProduct, str]:
        """Return the descriptors of the product, and the key of its algorithm in ``Tuning``."""
        alignment = min(_alignment(address) for address in (*addresses, addend, bias, aux))
        key = f"{self._named}: {_described(gemm)}, aligned to {alignment}"
        made = LtProduct(self._library, self._handle, gemm, alignment, bias, aux, scales)
        return made, key

    def _fastest(
        self,
        gemm: GemmCall,
        product: LtProduct,
        default: Callable[[tuple[int, int, int]], OnStream] | None,
        bias: int = 0,
    ) -> bytes:
        """Measure the candidates on random operands and return the fastest; empty if ``default`` is the fastest.

        bias: address of the bias vector, which is read as it is.
        """
        blocks = [
            self._random(_num_bytes(matrix, gemm.count, columns, kind), kind)
            for matrix, columns, kind in (
                (gemm.a, gemm.m if gemm.a.transposed else gemm.k, gemm.a_kind),
                (gemm.b, gemm.k if gemm.b.transposed else gemm.n, gemm.b_kind),
                (gemm.c, gemm.n, gemm.result),
            )
        ]
        a, b, c = (block.address for block in blocks)
        measured = product
        if gemm.epilogue is not None and gemm.epilogue.aux:
            # Measurements must not write the program's own array.
            num_bytes = _num_bytes(gemm.c, gemm.count, gemm.n, gemm.result)
            blocks.append(self._random(num_bytes, gemm.result))
            firsts = 0, bias, blocks[-1].address
            measured, _ = self._product(gemm, (a, b, c), *firsts)
        best = b""
        least = math.inf if default is None else _GAIN * self._time(default((a, b, c)))
        for algorithm in product.candidates(self._workspace[1]):
            try:
                took = self._time(measured.bound((a, b, c), algorithm, *self._workspace))
            except CublasError:
                continue  # not every recommendation runs
            if took < least:
                best, least = algorithm, took
        return best

    def _time(self, run: OnStream) -> float:
        """Return the median time of a call of ``run`` in milliseconds."""
        stream = cupy.cuda.Stream(non_blocking=True)
        run(stream.ptr)
        took = []
        for _ in range(_SAMPLES):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            run(stream.ptr)
            end.record(stream)
            end.synchronize()
            took.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        return statistics.median(took)

    def _random(self, num_bytes: int, kind: PrimitiveType) -> GpuBlock:
        """Allocate ``num_bytes`` of device memory and fill them with normal random numbers of type ``kind``.

        Operands of zeros need less power, so other algorithms would be the fastest.
        """
        block = self._allocate(num_bytes)
        values = np.random.default_rng(0).standard_normal(_PATTERN // kind.byte_size)
        pattern = values.astype(kind.numpy).view(np.uint8)[: min(num_bytes, _PATTERN)]
        self._write(block.address, pattern)
        filled = pattern.size
        stream = cupy.cuda.Stream(non_blocking=True)
        while filled < num_bytes:
            more = min(filled, num_bytes - filled)
            to, kind_of_copy = block.address + filled, runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(to, block.address, more, kind_of_copy, stream.ptr)
            filled += more
        stream.synchronize()
        return block


def _alignment(address: int) -> int:
    return min(address & -address, _MOST_ALIGNMENT) if address else _MOST_ALIGNMENT


def _num_bytes(matrix: GemmMatrix, count: int, columns: int, kind: PrimitiveType) -> int:
    """Return the bytes that ``count`` matrices of ``columns`` stored columns span in memory."""
    return ((count - 1) * matrix.step + columns * matrix.leading) * kind.byte_size


def _described(gemm: GemmCall) -> str:
    a, b, c = (
        f"{'T' if m.transposed else 'N'}{m.leading}/{m.step}" for m in (gemm.a, gemm.b, gemm.c)
    )
    kinds = (
        f"{gemm.a_kind.value},{gemm.b_kind.value}>{gemm.result.value}{' tf32' if gemm.tf32 else ''}"
    )
    text = f"{gemm.m}x{gemm.n}x{gemm.k}x{gemm.count} {kinds} {a} {b} {c}"
    return text if gemm.epilogue is None else f"{text}{_described_epilogue(gemm.epilogue)}"


def _described_epilogue(epilogue: CallEpilogue) -> str:
    """Return what may decide which algorithm is the fastest: not the scales, except that some need no addend."""
    parts = {" addend": epilogue.beta != 0.0, " bias": epilogue.bias, " aux": epilogue.aux}
    activation = "" if epilogue.activation is None else f" {epilogue.activation.value}"
    return "".join(name for name, is_there in parts.items() if is_there) + activation
