"""Copy elements from one layout to another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from runtime.codegen.llvm.jit import host_permutes
from runtime.cpu.kernels.cache_lines_ir import LINE_BYTES
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
#: Of the innermost operation: count, columns, strides in the source and in the target.
_Inner: TypeAlias = tuple[int, int, int, int]

#: Bytes of the widest elements whose transposes gain by tiles.
_WIDEST_TILED = 8
#: Bytes of what is transposed past the near caches: it would have left the second level before its end is written.
_LEAST_FAR = 4 << 20
#: Bytes of each of its matrices, at least: many lines in each direction.
_LEAST_FAR_MATRIX = 1 << 16
#: Bytes of a row that is stored in lines: those at its ends are few.
_LEAST_STREAMED_ROW = 1 << 10


@CPU_KERNELS.binds(CopyKernel)
def bind_copy(_: CopyKernel, arrays: KernelArrays) -> Action:
    (source,), (target,) = arrays.operands, arrays.results
    return copying(source, target)


def copying(source: NDArray, target: NDArray) -> Action:
    """target = source, of the same type, repeated where it has fewer dimensions or elements."""
    return native_copy(source, target) or partial(np.copyto, target, source)


def native_copy(source: NDArray, target: NDArray) -> NativeAction | None:
    """One call whose record says where source and target lie; none where there is nothing to copy.

    None where the two share bytes, or have more dimensions than native code counts in.
    """
    if target.size == 0:
        return NOTHING
    if target.itemsize not in WIDTHS or np.may_share_memory(source, target):
        return None
    source = np.broadcast_to(source, target.shape)
    dimensions = merged_by_target(
        list(zip(target.shape, source.strides, target.strides, strict=True))
    )
    innermost, width, words, outer = _innermost(dimensions, target.itemsize)
    if innermost is Innermost.TRANSPOSE and target.nbytes >= _LEAST_FAR:
        innermost = _transpose_past_near_caches(
            (source.ctypes.data, target.ctypes.data), width, words, outer
        )
    if innermost is Innermost.REVERSED and target.nbytes >= _LEAST_FAR:
        innermost = _reversed_past_near_caches(target.ctypes.data, width, words, outer)
    if len(outer) > RANK:
        return None
    around: Sequence[Any] = outer  # tuples of numbers, which are records
    record = CopyRecord(source.ctypes.data, target.ctypes.data, len(outer), *words, around)
    return native_call(copy_code(innermost, width), FUNCTION, record.to_array(), (source, target))


def merged_by_target(dimensions: Sequence[_Dimension]) -> list[_Dimension]:
    """The same elements in as few dimensions as strides allow, those that are far apart in the target first."""
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
            words = (size, along[0], source, along[2])
            return Innermost.TRANSPOSE, width, words, outer
    return Innermost.STRIDED, width, (size, 1, source, target), outer


def _transpose_past_near_caches(
    places: tuple[int, int], width: int, words: _Inner, outer: Sequence[_Dimension]
) -> Innermost:
    """The code that fits, whose tiles take 32 registers of 64 bytes, which not all hosts have.

    places: the first elements' addresses. An element of ``width`` bytes may be a row of some, which need not begin with
    a multiple of its own size.
    """
    rows, columns, _, to_next_row = words
    if not host_permutes() or rows * columns * width < _LEAST_FAR_MATRIX:
        return Innermost.TRANSPOSE
    if any(place % width for place in places) or min(rows, columns) * width < LINE_BYTES:
        return Innermost.TRANSPOSE
    strides = (to_next_row, *(dimension[2] for dimension in outer))
    if any(stride % LINE_BYTES for stride in strides):
        return Innermost.FAR_TRANSPOSE
    return Innermost.STREAMED_TRANSPOSE


def _reversed_past_near_caches(
    target: int, width: int, words: _Inner, outer: Sequence[_Dimension]
) -> Innermost:
    """Past all caches where rows are some lines, and elements begin with a multiple of their size."""
    count = words[0]
    places = (target, *(dimension[2] for dimension in outer))
    if width > _WIDEST_TILED or count * width < _LEAST_STREAMED_ROW:
        return Innermost.REVERSED
    if any(place % width for place in places):
        return Innermost.REVERSED
    return Innermost.STREAMED_REVERSED
