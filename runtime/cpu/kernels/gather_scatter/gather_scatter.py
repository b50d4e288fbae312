"""Gather and scatter: windows at offsets from an index array, which native code moves or combines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_jit
from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.native_call import NOTHING, in_order, native_call
from runtime.program.argument_record import Address, Record, Word, record
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows, ScatterKernel
from runtime.program.scalar_program import Reducer, ScalarProgram
from runtime.program.strides import merged_dims
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

FUNCTION = "spmd_indexed"


@dataclass(frozen=True, slots=True)
class GatherElements:
    """Gather of elements of ``byte_size`` bytes, which copies them from the array to the slices."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class ScatterElements:
    """Scatter of elements of ``byte_size`` bytes, which copies them from the slices to the array."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class CombineElements:
    """Scatter that combines the elements of type ``kind`` of the slices with those of the array.

    If ``reduction`` is known and the elements are floats narrower than f32, the array holds accumulators in f32, which
    are not rounded in between.
    """

    kind: PrimitiveType
    reduction: Reducer


Elements: TypeAlias = GatherElements | ScatterElements | CombineElements


@dataclass(frozen=True, slots=True)
class IndexedVariant:
    """Variant of the code for index vectors that ``indices`` computes.

    ``batch`` is the number of dimensions over index vectors, and ``window`` that of dimensions over a window.
    ``packed`` tells that array and slices are contiguous along a window's last dimension.
    """

    indices: ScalarProgram
    elements: Elements
    batch: int
    window: int
    packed: bool


@record
class BatchDimension(Record):
    """Dimension over index vectors: its size, and its strides in array, slices and each leaf in bytes."""

    size: Word
    array: Word
    slices: Word
    leaves: Sequence[Word]


@record
class WindowDimension(Record):
    """Dimension over a window: its size, and its strides in array and slices in bytes."""

    size: Word
    array: Word
    slices: Word


@record
class Component(Record):
    """Component of an index vector.

    ``stride`` is the stride of its dimension in the array in bytes; ``limit`` is the largest start at which the window
    fits.
    """

    stride: Word
    limit: Word


@record
class IndexedRecord(Record):
    """Addresses and dimensions of a gather or scatter. Dimensions are listed slowest first."""

    array: Address
    slices: Address
    leaves: Sequence[Address]
    batch: Sequence[BatchDimension]
    window: Sequence[WindowDimension]
    components: Sequence[Component]


@cache
def indexed_code(variant: IndexedVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of an IndexedRecord."""
    ir = DeferredIr(
        "runtime.cpu.kernels.gather_scatter.gather_scatter_ir", "indexed_ir", (variant,)
    )
    return host_jit().compile(ir, (FUNCTION,))


@CPU_KERNELS.binds(GatherKernel)
def bind_gather(kernel: GatherKernel, arrays: KernelArrays) -> Action:
    """Bind the gather as one native call."""
    source = arrays.operands[kernel.windows.array]
    (out,) = arrays.results
    return _bind(kernel.windows, arrays.operands, source, out, GatherElements(out.itemsize))


@CPU_KERNELS.binds(ScatterKernel)
def bind_scatter(kernel: ScatterKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of the operand, unless the result has its memory, and the updates.

    If there is scratch, the copy and the updates are in its type, and are converted to the result at the end.
    """
    source, updates = (arrays.operands[n] for n in (kernel.windows.array, kernel.updates))
    (out,) = arrays.results
    target = arrays.scratch[0] if arrays.scratch else out
    elements: Elements = ScatterElements(out.itemsize)
    if kernel.reduction is not None:
        is_program = isinstance(kernel.reduction, ScalarProgram)
        dtype = out.dtype if is_program else np.empty(0, out.dtype).real.dtype
        elements = CombineElements(PrimitiveType.from_numpy(dtype), kernel.reduction)
    combine = _bind(kernel.windows, arrays.operands, target, updates, elements)
    if np.may_share_memory(source, target):
        return combine
    after = [] if target is out else [converting(target, out)]
    return in_order(converting(source, target), combine, *after)


#: Dimension: its size, and then its stride in each array, in bytes.
_Dimension: TypeAlias = tuple[int, ...]


def _bind(
    windows: IndexedWindows,
    operands: Sequence[NDArray],
    array: NDArray,
    slices: NDArray,
    elements: Elements,
) -> Action:
    """Bind the gather or scatter of ``elements`` between ``array``, which is indexed, and ``slices``.

    A known reduction of complex numbers, which is a sum, combines real and imaginary parts as separate elements.
    """
    if slices.size == 0:
        return NOTHING
    batch: list[_Dimension] = [
        (
            slices.shape[n],
            0 if f is None else array.strides[f],
            slices.strides[n],
            *(leaf.view.strides[k] for leaf in windows.leaves),
        )
        for k, (n, f) in enumerate(windows.batch)
    ]
    window: list[_Dimension] = [
        (slices.shape[n], array.strides[f], slices.strides[n]) for n, f in windows.window
    ]
    in_parts = (
        isinstance(elements, CombineElements)
        and array.dtype.kind == "c"
        and not isinstance(elements.reduction, ScalarProgram)
    )
    if in_parts:
        window.append((2, array.itemsize // 2, slices.itemsize // 2))
    # Elements of a window are distinct, so any order will do; the best one has the smallest stride last.
    window.sort(key=lambda dimension: -abs(dimension[1]))
    batch, window = _merged(batch), _merged(window)
    record = IndexedRecord(
        array.ctypes.data,
        slices.ctypes.data,
        [operands[leaf.operand].ctypes.data + leaf.view.offset for leaf in windows.leaves],
        [BatchDimension(d[0], d[1], d[2], d[3:]) for d in batch],
        [WindowDimension(*dimension) for dimension in window],
        [Component(array.strides[d], limit) for d, limit in windows.starts],
    )
    items = [a.itemsize // (2 if in_parts else 1) for a in (array, slices)]
    packed = bool(window) and window[-1][1:] == tuple(items)
    variant = IndexedVariant(windows.indices, elements, len(batch), len(window), packed)
    used = (array, slices, *operands)
    return native_call(indexed_code(variant), FUNCTION, record.to_array(), used)


def _merged(dimensions: Sequence[_Dimension]) -> list[_Dimension]:
    """Merge adjacent dimensions as far as strides allow, and drop those of size 1."""
    if not dimensions:
        return []
    dims, *strides = zip(*dimensions, strict=True)
    sizes, merged_strides = merged_dims(dims, strides)
    return [*zip(sizes, *merged_strides, strict=True)]
