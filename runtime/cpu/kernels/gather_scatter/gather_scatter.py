"""gather and scatter: windows at places that an index array names, moved or combined by native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.gather_scatter.gather_scatter_ir import (
    FUNCTION,
    BatchDimension,
    CombineElements,
    Component,
    Elements,
    GatherElements,
    IndexedForm,
    IndexedRecord,
    ScatterElements,
    WindowDimension,
    indexed_code,
)
from runtime.cpu.kernels.native_call import NOTHING, in_order, native_call
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows, ScatterKernel
from runtime.program.scalar_program import ScalarProgram
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(GatherKernel)
def bind_gather(kernel: GatherKernel, arrays: KernelArrays) -> Action:
    source, indices = arrays.operands
    (out,) = arrays.results
    return _bind(kernel.windows, source, indices, out, GatherElements(out.itemsize))


@CPU_KERNELS.binds(ScatterKernel)
def bind_scatter(kernel: ScatterKernel, arrays: KernelArrays) -> Action:
    source, indices, updates = arrays.operands
    (out,) = arrays.results
    target = arrays.scratch[0] if arrays.scratch else out
    elements: Elements = ScatterElements(out.itemsize)
    if kernel.reduction is not None:
        whole = isinstance(kernel.reduction, ScalarProgram)
        dtype = out.dtype if whole else np.empty(0, out.dtype).real.dtype
        elements = CombineElements(PrimitiveType.from_numpy(dtype), kernel.reduction)
    combine = _bind(kernel.windows, target, indices, updates, elements)
    if np.may_share_memory(source, target):
        return combine
    after = [] if target is out else [converting(target, out)]
    return in_order(converting(source, target), combine, *after)


#: (size, then strides in each of some arrays)
_Dimension: TypeAlias = tuple[int, ...]


def _bind(
    windows: IndexedWindows, far: NDArray, indices: NDArray, near: NDArray, elements: Elements
) -> Action:
    if near.size == 0:
        return NOTHING
    batch: list[_Dimension] = [
        (near.shape[n], indices.strides[i], 0 if f is None else far.strides[f], near.strides[n])
        for n, i, f in windows.batch
    ]
    window: list[_Dimension] = [
        (near.shape[n], far.strides[f], near.strides[n]) for n, f in windows.window
    ]
    in_parts = (
        isinstance(elements, CombineElements)
        and far.dtype.kind == "c"
        and not isinstance(elements.reduction, ScalarProgram)
    )
    if in_parts:
        window.append((2, far.itemsize // 2, near.itemsize // 2))
    # Within a window every element has a place of its own, so any order will do: best the fastest last.
    window.sort(key=lambda dimension: -abs(dimension[1]))
    batch, window = _merged(batch), _merged(window)
    step = 0 if windows.vector is None else indices.strides[windows.vector]
    record = IndexedRecord(
        far.ctypes.data,
        near.ctypes.data,
        indices.ctypes.data,
        [BatchDimension(*dimension) for dimension in batch],
        [WindowDimension(*dimension) for dimension in window],
        [Component(k * step, far.strides[d], limit) for k, (d, limit) in enumerate(windows.starts)],
    )
    items = [a.itemsize // (2 if in_parts else 1) for a in (far, near)]
    packed = bool(window) and window[-1][1:] == tuple(items)
    form = IndexedForm(
        PrimitiveType.from_numpy(indices.dtype),
        elements,
        len(batch),
        len(window),
        len(windows.starts),
        packed,
    )
    return native_call(indexed_code(form), FUNCTION, record.to_array(), (far, indices, near))


def _merged(dimensions: Sequence[_Dimension]) -> list[_Dimension]:
    """The same walk with as few dimensions as strides allow."""
    merged: list[_Dimension] = []
    for size, *strides in dimensions:
        if size == 1:
            continue
        if merged and merged[-1][1:] == tuple(size * stride for stride in strides):
            merged[-1] = (merged[-1][0] * size, *strides)
        else:
            merged.append((size, *strides))
    return merged
