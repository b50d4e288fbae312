"""sort by any comparator of element operations, and topk, in native code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.codegen.llvm_sort import FUNCTION, SortWords, sort_code
from runtime.codegen.native_call import native_call
from runtime.codegen.scalar_program import ScalarProgram
from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from spmd.literal import NDArray


@dataclass(frozen=True)
class SortKernel(Kernel):
    """results = the operands' rows along ``axis`` in the comparator's order, equals as they stood: as many elements of
    each as the results have. ``with_places``: one more result has the places (s32) that they come from.

    scratch[0]: two numbers (s32) for each element of a row.
    """

    comparator: ScalarProgram
    axis: int
    with_places: bool


@NUMPY_KERNELS.binds(SortKernel)
def bind_sort(kernel: SortKernel, arrays: KernelArrays) -> Action:
    first, axis = arrays.operands[0], kernel.axis
    size, count = first.shape[axis], arrays.results[0].shape[axis]
    others = [d for d in range(first.ndim) if d != axis]

    def described(array: NDArray) -> tuple[int, list[int], int]:
        return (array.ctypes.data, [array.strides[d] for d in others], array.strides[axis])

    (scratch,) = arrays.scratch
    words = SortWords(
        [first.shape[d] for d in others],
        size,
        count,
        (scratch.ctypes.data, scratch.ctypes.data + size * scratch.itemsize),
        [described(x) for x in arrays.operands],
        [described(y) for y in arrays.results],
    )
    record = np.array(words.packed(), np.int64)
    code = sort_code(kernel.comparator, kernel.with_places)
    alive = (*arrays.operands, *arrays.results, scratch)
    return native_call(code, FUNCTION, record, alive)
