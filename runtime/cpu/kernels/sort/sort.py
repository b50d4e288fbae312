"""Sorts by any comparator that is a scalar program, and top-k, in native code."""

from __future__ import annotations

from enum import Enum

from runtime.cpu.kernels.native_call import native_call
from runtime.cpu.kernels.sort import merge_sort_ir, radix_sort_ir, top_k_ir
from runtime.cpu.kernels.sort.merge_sort_ir import SortedArray, SortRecord
from runtime.cpu.kernels.sort.radix_sort_ir import RadixVariant
from runtime.cpu.kernels.sort.sort_key import sort_key
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.sort import RANK, SortKernel
from spmd.literal import NDArray

#: Shorter rows use the merge sort: the histograms take as long as a row of some hundreds (Zen 5, f32: the merge sort
#: takes 0.15 of the time at 16 elements, 0.6 at 64, 1.0 at 128, 1.3 at 256, 8 at 4096).
LEAST_RADIX = 128
#: TOP is used for at most MOST_TOP elements, and at most 1 / TOP_PART of a row (Zen 5: a radix sort of 1024 takes 4.1
#: of the time with 8 elements, 1.3 with 64, 0.4 with 128; of 65536 5.8 with 64, 4.1 with 128, 1.0 with 512).
MOST_TOP = 64
TOP_PART = 8


class Method(Enum):
    """Method by which native code sorts a row."""

    MERGE = "merge"
    """Merge sort of the elements' indices, which calls the comparator. It sorts by any comparator."""
    RADIX = "radix"
    """Radix sort by the bytes of a key, for comparators that compare one value."""
    TOP = "top"
    """Top-k selection by a key: a sorted list holds the first few elements, and better elements are inserted."""


def radix_variant(kernel: SortKernel) -> RadixVariant | None:
    """Return the variant of a sort by a key, or None if the comparator does not compare by a key."""
    key = sort_key(kernel.comparator)
    if key is None:
        return None
    return RadixVariant(key, kernel.comparator.parameters[::2], kernel.with_indices)


def method_of(kernel: SortKernel) -> Method:
    """Return the method by which native code sorts the rows of ``kernel``."""
    if radix_variant(kernel) is None:
        return Method.MERGE
    if kernel.count <= min(MOST_TOP, kernel.size // TOP_PART):
        return Method.TOP
    return Method.RADIX if kernel.size >= LEAST_RADIX else Method.MERGE


def scratch_bytes(kernel: SortKernel) -> int:
    """Return the size in bytes of scratch, two arrays of equal sizes for the state of a row that is being sorted."""
    method, variant = method_of(kernel), radix_variant(kernel)
    if method is Method.TOP:
        return 2 * 8 * kernel.count
    if method is Method.RADIX:
        assert variant is not None
        return 2 * variant.moved_bytes * kernel.size
    return 2 * 4 * kernel.size


@CPU_KERNELS.binds(SortKernel)
def bind_sort(kernel: SortKernel, arrays: KernelArrays) -> Action:
    """Bind the sort as one native call, which sorts one row after the other."""
    first, axis = arrays.operands[0], kernel.axis
    others = [d for d in range(first.ndim) if d != axis]

    missing = RANK - len(others)

    def described(array: NDArray) -> SortedArray:
        """Return the record of ``array``, with strides of 0 for missing dimensions."""
        strides = [*[0] * missing, *(array.strides[d] for d in others)]
        return SortedArray(array.ctypes.data, strides, array.strides[axis])

    (scratch,) = arrays.scratch
    record = SortRecord(
        kernel.size,
        kernel.count,
        scratch.ctypes.data,
        scratch.ctypes.data + scratch.nbytes // 2,
        [*[1] * missing, *(first.shape[d] for d in others)],
        [described(x) for x in (*arrays.operands, *arrays.results)],
    ).to_array()
    alive = (*arrays.operands, *arrays.results, scratch)
    variant, method = radix_variant(kernel), method_of(kernel)
    if variant is None or method is Method.MERGE:
        code = merge_sort_ir.sort_code(kernel.comparator, kernel.with_indices)
        return native_call(code, merge_sort_ir.FUNCTION, record, alive)
    if method is Method.TOP:
        return native_call(top_k_ir.top_code(variant), top_k_ir.FUNCTION, record, alive)
    code = radix_sort_ir.radix_sort_code(variant)
    return native_call(code, radix_sort_ir.FUNCTION, record, alive)
