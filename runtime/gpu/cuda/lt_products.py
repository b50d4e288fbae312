"""Matrix products of f8 operands by cuBLASLt, which cuBLAS does not compute."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

from runtime.gpu.cuda.blas_api import CublasError
from runtime.gpu.cuda.lt_api import call, load_cublas_lt
from runtime.gpu.cuda.lt_product import LtProduct
from runtime.gpu.libraries.gemm import GemmCall

_MOST_ALIGNMENT = 256


class LtProducts:
    """cuBLASLt handle of one device, used by one stream at a time. It shares the workspace of cuBLAS."""

    def __init__(self, workspace: tuple[int, int]) -> None:
        """Create the handle. Raises CublasError if cuBLASLt is not found or fails.

        workspace: its address and size in bytes.
        """
        self._workspace = workspace
        self._library = load_cublas_lt()
        handle = ctypes.c_void_p()
        call(self._library, "cublasLtCreate", ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, self._library.cublasLtDestroy, handle)

    def load(self, gemm: GemmCall, addresses: tuple[int, int, int]) -> Callable[[int], None]:
        """Return a function of a CUDA stream's handle that computes ``gemm`` on a, b and c at ``addresses``.

        Raises CublasError if cuBLASLt has no algorithm for the product.
        """
        alignment = min(map(_alignment, addresses))
        product = LtProduct(self._library, self._handle, gemm, alignment)
        algorithm = product.recommended(self._workspace[1])
        if algorithm is None:
            kinds = f"{gemm.a_kind.value},{gemm.b_kind.value}>{gemm.result.value}"
            sizes = f"{gemm.m}x{gemm.n}x{gemm.k}x{gemm.count}"
            raise CublasError(f"cuBLASLt has no algorithm for {sizes} {kinds}")
        return product.bound(addresses, algorithm, *self._workspace)


def _alignment(address: int) -> int:
    return min(address & -address, _MOST_ALIGNMENT) if address else _MOST_ALIGNMENT
