"""Copies of elements from one layout to another, without conversion."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, native_call
from runtime.program.argument_record import Address, Record, Word, record, word_index
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.copy import CopyKernel, UninitializedKernel
from runtime.program.strides import merged_dims
from spmd.literal import NDArray

FUNCTION = "spmd_copy"

#: Largest number of dimensions around the innermost operation.
RANK = 16

#: Element widths in bytes for which there is code.
WIDTHS = (1, 2, 4, 8, 16)


class Innermost(Enum):
    """Operation at each position of the index counter. It decides on the meaning of the record's counts and strides."""

    ROWS = "rows"
    """Copy a row of ``count`` bytes that is contiguous in both arrays."""
    FILL = "fill"
    """Write one element of the source to ``count`` contiguous elements of the target."""
    REVERSED = "reversed"
    """Copy ``count`` elements that are contiguous in both arrays, in reverse order; the source starts at its last one.
    """
    STRIDED = "strided"
    """Copy ``count`` elements with a stride in each array."""
    TRANSPOSE = "transpose"
    """Copy element [i, j] of the source to [j, i] of the target, for i < ``count`` and j < ``columns``.

    The source is contiguous along j and has ``source_stride`` along i; the target is contiguous along i and has
    ``target_stride`` along j.
    """


#: Operations without a loop for the vectorizer: ROWS calls memcpy, STRIDED has strides, and TRANSPOSE is written with
#: vectors.
_AS_WRITTEN = (Innermost.ROWS, Innermost.STRIDED, Innermost.TRANSPOSE)


@record
class CopyDimension(Record):
    """Dimension around the innermost operation: its size, and its strides in source and target in bytes."""

    size: Word
    source: Word
    target: Word


@record
class CopyRecord(Record):
    """Record of a copy.

    It has the addresses of the first elements, the counts and strides (in bytes) of the innermost operation, and
    ``rank`` dimensions around it, slowest first.
    """

    source: Address
    target: Address
    rank: Word
    count: Word
    columns: Word
    source_stride: Word
    target_stride: Word
    dimensions: Sequence[CopyDimension]


#: Indices of the record's words that hold the addresses of the first elements.
SOURCE_WORD, TARGET_WORD = (word_index(CopyRecord, name) for name in ("source", "target"))


@cache
def copy_code(innermost: Innermost, width: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for elements of ``width`` bytes, which takes the address of a CopyRecord."""
    passes = Passes.TIDY if innermost in _AS_WRITTEN else Passes.VECTORIZE
    ir = DeferredIr("runtime.cpu.kernels.copy.copy_ir", "copy_ir", (innermost, width))
    return host_jit().compile(ir, (FUNCTION,), passes=passes)


def transpose_name(width: int) -> str:
    """Return the name of the function that transposes elements of ``width`` bytes."""
    return f"transpose{width}"


@cache
def transpose_code(width: int) -> NativeLibrary:
    """Return the library of ``transpose_name(width)``, which other native code calls (transpose_ir.add_transpose)."""
    ir = DeferredIr("runtime.cpu.kernels.copy.transpose_ir", "transpose_ir", (width,))
    return host_jit().compile(ir, (transpose_name(width),), passes=Passes.TIDY)


#: Dimension of a copy: its size, and its strides in source and target in bytes.
_Dimension: TypeAlias = tuple[int, int, int]
#: Fields of the innermost operation: count, columns, and strides in source and target in bytes.
_Inner: TypeAlias = tuple[int, int, int, int]

#: Largest element width in bytes that is transposed by tiles.
_WIDEST_TILED = 8


@CPU_KERNELS.binds(CopyKernel)
def bind_copy(_: CopyKernel, arrays: KernelArrays) -> Action:
    """Bind the copy, natively if possible (see ``copying``)."""
    (source,), (target,) = arrays.operands, arrays.results
    return copying(source, target)


@CPU_KERNELS.binds(UninitializedKernel)
def bind_uninitialized(_: UninitializedKernel, __: KernelArrays) -> Action:
    """Return an action that does nothing."""
    return NOTHING


def copying(source: NDArray, target: NDArray) -> Action:
    """Return an action that copies ``source``, broadcast to the shape of ``target``, to ``target``.

    Both must have the same type. NumPy copies where ``native_copy`` returns None.
    """
    return native_copy(source, target) or partial(np.copyto, target, source)


def native_copy(source: NDArray, target: NDArray) -> NativeAction | None:
    """Return an action of one native call, whose record holds both addresses, or of none if there is nothing to copy.

    Returns None if the arrays may share bytes, if there is no code for the width of an element, or if more than RANK
    dimensions remain around the innermost operation.
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
    """Sort ``dimensions`` by their stride in the target, largest first, and merge them as far as strides allow.

    Dimensions of size 1 are dropped.
    """
    ordered = sorted(dimensions, key=lambda dimension: (-abs(dimension[2]), -abs(dimension[1])))
    strides = [[dimension[number] for dimension in ordered] for number in (1, 2)]
    sizes, (source, target) = merged_dims([size for size, _, _ in ordered], strides)
    return [*zip(sizes, source, target, strict=True)]


def _innermost(
    dimensions: list[_Dimension], width: int
) -> tuple[Innermost, int, _Inner, list[_Dimension]]:
    """Return the innermost operation, its element width in bytes, its counts and strides, and the other dimensions."""
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
