"""Elementwise operations that NumPy has not, or not without arrays of its own, in native code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.codegen.element_operations import ElementSignature
from runtime.codegen.llvm_elementwise import (
    FUNCTION,
    ElementwiseWords,
    Step,
    elementwise_code,
)
from runtime.codegen.native_call import NOTHING, native_call
from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from spmd.literal import NDArray


@dataclass(frozen=True)
class NativeElementwiseKernel(Kernel):
    """results[0] = the operation's value on operands of the result's sizes, which may be its memory."""

    signature: ElementSignature


@NUMPY_KERNELS.binds(NativeElementwiseKernel)
def bind_native_elementwise(kernel: NativeElementwiseKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    every = (result, *arrays.operands)
    if result.size == 0:
        return NOTHING
    sizes, strides = merged_dims(result.shape, [array.strides for array in every])
    inner = [own[-1] if own else 0 for own in strides]
    steps = [_step(stride, array, sizes) for stride, array in zip(inner, every, strict=True)]
    words = ElementwiseWords([array.ctypes.data for array in every], sizes, strides)
    record = np.array(words.packed(), np.int64)
    code = elementwise_code(kernel.signature, tuple(steps))
    return native_call(code, FUNCTION, record, every)


def _step(stride: int, array: NDArray, sizes: Sequence[int]) -> Step:
    if not sizes or stride == array.itemsize:
        return Step.PACKED
    return Step.REPEATED if stride == 0 else Step.STRIDED


def merged_dims(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The same walk over several arrays with as few dimensions as their strides allow."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(dims):
        if size == 1:
            continue
        if sizes and all(
            own[-1] == size * each[d] for own, each in zip(kept, strides, strict=True)
        ):
            sizes[-1] *= size
            for own, each in zip(kept, strides, strict=True):
                own[-1] = each[d]
        else:
            sizes.append(size)
            for own, each in zip(kept, strides, strict=True):
                own.append(each[d])
    assert math.prod(sizes) == math.prod(dims)
    return sizes, kept
