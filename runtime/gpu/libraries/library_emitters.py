"""Library calls by class of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

from runtime.gpu.libraries.convolution_call import LibraryConvolution
from runtime.gpu.libraries.gemm import gemm_calls, in_one_call
from runtime.gpu.work import (
    ConvolutionWork,
    CopyWork,
    FftWork,
    GemmWork,
    KernelArraysOnDevice,
    Work,
)
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.records.fft import FftKernel
from spmd.registry import Registry

#: Function (kernel, arrays) -> work, or None if the library does not support the types or strides of the arrays.
LibraryEmitter: TypeAlias = Callable[[Kernel, KernelArraysOnDevice], Work | None]
LIBRARY_EMITTERS: Registry[type[Kernel], LibraryEmitter] = Registry("library form")

K = TypeVar("K", bound=Kernel)


def through_library(
    kind: type[K],
) -> Callable[[Callable[[K, KernelArraysOnDevice], Work | None]], object]:
    """Return a decorator that registers a function as the library call of kernels of class ``kind``.

    The function is called once with address 0 for planning, and once with the addresses of the arrays. Whether it
    returns None must not depend on the addresses.
    """

    def decorator(emitter: Callable[[K, KernelArraysOnDevice], Work | None]) -> object:
        LIBRARY_EMITTERS.add(kind, cast("LibraryEmitter", emitter))
        return emitter

    return decorator


def library_work(kernel: Kernel, arrays: KernelArraysOnDevice) -> Work | None:
    """Return the library call that computes ``kernel`` on ``arrays``, or None if no library function does."""
    emitter = LIBRARY_EMITTERS.get(type(kernel))
    return None if emitter is None else emitter(kernel, arrays)


@through_library(DotKernel)
def dot(kernel: DotKernel, arrays: KernelArraysOnDevice) -> Work | None:
    """Return the cuBLAS calls of a matrix product, or None if cuBLAS does not support its types or strides."""
    (lhs, rhs), (out,) = arrays.operands, arrays.results
    calls = gemm_calls(kernel, lhs.view, rhs.view, out.view)
    if calls is None:
        return None
    return GemmWork(in_one_call(calls, lhs.first, rhs.first, out.first), lhs, rhs, out)


@through_library(LibraryConvolution)
def convolution(kernel: LibraryConvolution, arrays: KernelArraysOnDevice) -> Work:
    """Return the cuDNN call of a convolution."""
    (first, second), (result,) = arrays.operands, arrays.results
    return ConvolutionWork(kernel, first, second, result)


@through_library(FftKernel)
def fft(kernel: FftKernel, arrays: KernelArraysOnDevice) -> Work:
    """Return the cuFFT transform of an FFT kernel."""
    (source,), (target,) = arrays.operands, arrays.results
    return FftWork(source, target, kernel.type, kernel.rank, kernel.length)


@through_library(CopyKernel)
def copy(_: CopyKernel, arrays: KernelArraysOnDevice) -> Work | None:
    """Return the copy of a strided array by CUDA or CuPy."""
    return CopyWork(arrays.operands[0], arrays.results[0])
