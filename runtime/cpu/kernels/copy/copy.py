"""Copy elements from one layout to another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from runtime.cpu.kernels.copy.copy_ir import (
    FUNCTION,
    RANK,
    WIDTHS,
    CopyRecord,
    Innermost,
    copy_code,
)
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, native_call
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.copy import CopyKernel
from spmd.literal import NDArray

#: (size, stride in the source, in the target)
_Dimension: TypeAlias = tuple[int, int, int]
#: Innermost operation: count, columns, strides in the source and in the target.
_Inner: TypeAlias = tuple[int, int, int, int]

#: Width in bytes of the widest elements that are transposed by tiles.
_WIDEST_TILED = 8


@CPU_KERNELS.binds(CopyKernel)
def bind_copy(_: CopyKernel, arrays: KernelArrays) -> Action:
    (source,), (target,) = arrays.operands, arrays.results
    return copying(source, target)


def copying(source: NDArray, target: NDArray) -> Action:
    """Bind target = source, of the same type, broadcast."""
    return native_copy(source, target) or partial(np.copyto, target, source)


def native_copy(source: NDArray, target: NDArray) -> NativeAction | None:
    """Return one call, whose record holds both addresses, or no call if nothing is to be copied.

    Returns None if the arrays share bytes or have more dimensions than native code supports.
    """
    if target.size == 0:
        return NOTHING
    if target.itemsize not in WIDTHS or np.may_share_memory(source, target):
        return None
    source = np.broadcast_to(source, target.shape)
    dimensions = merged_by_target(
        list(zip(target.shape, source.strides, target.strides, strict=True))
    )
    innermost, width, inner, outer = _innermost(dimensions, target.itemsize)
    if len(outer) > RANK:
        return None
    around: Sequence[Any] = outer  # tuples of numbers, which are records
    record = CopyRecord(source.ctypes.data, target.ctypes.data, len(outer), *inner, around)
    return native_call(copy_code(innermost, width), FUNCTION, record.to_array(), (source, target))


def merged_by_target(dimensions: Sequence[_Dimension]) -> list[_Dimension]:
    """Merge dimensions as far as strides allow and sort them by their stride in the target, the largest first."""
    merged: list[_Dimension] = []
    ordered = sorted(
        (dimension for dimension in dimensions if dimension[0] > 1),
        key=lambda dimension: (-abs(dimension[2]), -abs(dimension[1])),
    )
    for size, *strides in ordered:
        if merged and list(merged[-1][1:]) == [size * stride for stride in strides]:
            merged[-1] = (merged[-1][0] * size, strides[0], strides[1])
        else:
            merged.append((size, strides[0], strides[1]))
    return merged


def _innermost(
    dimensions: list[_Dimension], width: int
) -> tuple[Innermost, int, _Inner, list[_Dimension]]:
    """Return the innermost operation, the width of its elements, its sizes and strides, and the other dimensions."""
    if not dimensions or dimensions[-1][1:] == (width, width):
        *outer, (size, _, _) = dimensions or [(1, width, width)]
        row = size * width
        if row not in WIDTHS or not outer:
            return Innermost.ROWS, 1, (row, 1, 0, 0), outer
        dimensions, width = outer, row  # a short row is one wide element
    *outer, (size, source, target) = dimensions
    if target == width:
        if source == 0:
            return Innermost.FILL, width, (size, 1, 0, 0), outer
        if source == -width:
            return Innermost.REVERSED, width, (size, 1, 0, 0), outer
        along = next((d for d in outer if d[1] == width), None)
        if along is not None and width <= _WIDEST_TILED:
            outer.remove(along)
            inner = (size, along[0], source, along[2])
            return Innermost.TRANSPOSE, width, inner, outer
    return Innermost.STRIDED, width, (size, 1, source, target), outer
