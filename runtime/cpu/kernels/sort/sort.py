"""sort by any comparator of element operations, and topk, in native code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from runtime.cpu.kernels.native_call import native_call
from runtime.cpu.kernels.sort import merge_sort_ir, radix_sort_ir, top_k_ir
from runtime.cpu.kernels.sort.merge_sort_ir import SortWords
from runtime.cpu.kernels.sort.radix_sort_ir import RadixForm
from runtime.cpu.kernels.sort.sort_key import sort_key
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from runtime.program.scalar_program import ScalarProgram
from spmd.literal import NDArray

#: Shorter rows are merged: counting takes as long as a row of some hundreds.
LEAST_RADIX = 128
#: Of a row the first elements come from a list that others enter if they are so many or fewer, and such a part.
MOST_TOP = 64
TOP_PART = 8


class Method(Enum):
    MERGE = "merge"
    """Of places, by the comparator."""
    RADIX = "radix"
    """By the bytes of a key."""
    TOP = "top"
    """The first ones by a key."""


@dataclass(frozen=True)
class SortKernel(Kernel):
    """results = the operands' rows along ``axis`` in the comparator's order, equals as they stood: of each the first
    ``count`` of ``size`` elements. ``with_places``: one more result has the places (s32) that they come from.

    scratch[0]: ``scratch_bytes``.
    """

    comparator: ScalarProgram
    axis: int
    size: int
    count: int
    with_places: bool

    @property
    def form(self) -> RadixForm | None:
        key = sort_key(self.comparator)
        if key is None:
            return None
        return RadixForm(key, self.comparator.parameters[::2], self.with_places)

    @property
    def method(self) -> Method:
        if self.form is None:
            return Method.MERGE
        if self.count <= min(MOST_TOP, self.size // TOP_PART):
            return Method.TOP
        return Method.RADIX if self.size >= LEAST_RADIX else Method.MERGE

    @property
    def scratch_bytes(self) -> int:
        """Of two arrays of equal sizes."""
        form = self.form
        if self.method is Method.TOP:
            return 2 * 8 * self.count
        if self.method is Method.RADIX:
            assert form is not None
            return 2 * form.moved_bytes * self.size
        return 2 * 4 * self.size


@CPU_KERNELS.binds(SortKernel)
def bind_sort(kernel: SortKernel, arrays: KernelArrays) -> Action:
    first, axis = arrays.operands[0], kernel.axis
    others = [d for d in range(first.ndim) if d != axis]

    def described(array: NDArray) -> tuple[int, list[int], int]:
        return (array.ctypes.data, [array.strides[d] for d in others], array.strides[axis])

    (scratch,) = arrays.scratch
    words = SortWords(
        [first.shape[d] for d in others],
        kernel.size,
        kernel.count,
        (scratch.ctypes.data, scratch.ctypes.data + scratch.nbytes // 2),
        [described(x) for x in arrays.operands],
        [described(y) for y in arrays.results],
    )
    record = np.array(words.packed(), np.int64)
    alive = (*arrays.operands, *arrays.results, scratch)
    form = kernel.form
    if form is None or kernel.method is Method.MERGE:
        code = merge_sort_ir.sort_code(kernel.comparator, kernel.with_places)
        return native_call(code, merge_sort_ir.FUNCTION, record, alive)
    if kernel.method is Method.TOP:
        return native_call(top_k_ir.top_code(form), top_k_ir.FUNCTION, record, alive)
    code = radix_sort_ir.radix_sort_code(form)
    return native_call(code, radix_sort_ir.FUNCTION, record, alive)
