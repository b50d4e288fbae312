"""The value of a bitcast, made of operations on logical arrays: reshape, transpose, bitcast-convert."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.memory_order import (
    DimensionPart,
    common_sizes,
    logical_order,
    memory_orders,
)
from spmd.shape import COMPLEX_PARTS, ArrayShape, PrimitiveType

Order: TypeAlias = tuple[DimensionPart, ...]


@dataclass(frozen=True)
class Array:
    """Logical sizes, element type, and the order in which the dimensions' parts lie in memory."""

    element_type: PrimitiveType
    dims: tuple[int, ...]
    order: Order

    def split(self, element_type: PrimitiveType, count: int) -> Array:
        """Return the array of the parts of the elements: ``count`` of them along a new minor dimension."""
        minor = DimensionPart(len(self.dims), (), count)
        return Array(element_type, (*self.dims, count), (*self.order, minor))

    def retyped(self, element_type: PrimitiveType) -> Array:
        return Array(element_type, self.dims, self.order)


def is_decomposed(bitcast: HloInstruction) -> bool:
    """Return whether other operations can say it: sizes are static, and it is not one of those that remain."""
    source, target = bitcast.operand(0).array_shape, bitcast.array_shape
    if any((*source.dynamic, *target.dynamic)):
        return False
    is_flat = source.rank == target.rank == 1
    return not (is_flat and _packed_apart(source.element_type, target.element_type))


def decomposed(x: HloInstruction, target: ArrayShape, b: Builder) -> HloInstruction:
    """Return the value of a bitcast of ``x`` to ``target``; ``x`` itself if nothing is to be done.

    Raises UnsupportedError if it depends on the padding of tiles.
    """
    source = x.array_shape
    before, after = memory_orders(source, target)
    return _bitcast(
        x,
        Array(source.element_type, source.dims, before),
        Array(target.element_type, target.dims, after),
        b,
    )


def _bitcast(x: HloInstruction, source: Array, target: Array, b: Builder) -> HloInstruction:
    """Convert to elements of the target's type, or of its parts' type, then put them in order."""
    old, new = source.element_type, target.element_type
    if old is new:
        return _moved(x, source, target, b)
    if old.is_complex:
        part = COMPLEX_PARTS[old]
        return _bitcast(_complex_parts(x, b), source.split(part, 2), target, b)
    if new.is_complex:
        return _of_complex_parts(_bitcast(x, source, target.split(COMPLEX_PARTS[new], 2), b), b)
    if _packed_apart(old, new):
        return _moved(_flat_bitcast(x, new, b), source.retyped(new), target, b)
    if old.bits < new.bits:
        parts = _moved(x, source, target.split(old, new.bits // old.bits), b)
        return _bits_as(parts, new, b)
    converted = _bits_as(x, new, b)
    if old.bits == new.bits:
        return _moved(converted, source.retyped(new), target, b)
    return _moved(converted, source.split(new, old.bits // new.bits), target, b)


# ---- elements of another type
def _packed_apart(old: PrimitiveType, new: PrimitiveType) -> bool:
    """Return whether the types take 6 and 8 bits, which fill a byte each: bitcast-convert does not know that."""
    return old.bits != new.bits and old.packed_bits == new.packed_bits


def _flat_bitcast(x: HloInstruction, element_type: PrimitiveType, b: Builder) -> HloInstruction:
    count = math.prod(x.dims)
    flat = b.reshape(x, (count,))
    cast = b.create(Opcode.BITCAST, (flat,), shape=ArrayShape(element_type, (count,)))
    return b.reshape(cast, x.dims)


def _bits_as(x: HloInstruction, element_type: PrimitiveType, b: Builder) -> HloInstruction:
    stated = ArrayShape(element_type, ())
    return b.create(Opcode.BITCAST_CONVERT, (x,), shape=stated)


def _complex_parts(x: HloInstruction, b: Builder) -> HloInstruction:
    """Return real and imaginary parts along a new minor dimension."""
    parts = [b.reshape(b.unary(opcode, x), (*x.dims, 1)) for opcode in (Opcode.REAL, Opcode.IMAG)]
    return b.concatenate(parts, len(x.dims))


def _of_complex_parts(x: HloInstruction, b: Builder) -> HloInstruction:
    dims = x.dims[:-1]
    real, imag = (b.reshape(b.slice_along(x, len(dims), part, part + 1), dims) for part in range(2))
    return b.binary(Opcode.COMPLEX, real, imag)


# ---- elements in another order
def _moved(x: HloInstruction, source: Array, target: Array, b: Builder) -> HloInstruction:
    """Return ``x``, of ``source``'s sizes, as the array of ``target``'s sizes with the same memory."""
    if 0 in source.dims:
        return b.reshape_to(x, target.dims)
    if _is_cut(source) or _is_cut(target) or _sizes(source.order) != _sizes(target.order):
        return _moved_in_parts(x, source, target, b)
    return b.transpose_by(x, _permutation(source.order, target.order))


def _moved_in_parts(x: HloInstruction, source: Array, target: Array, b: Builder) -> HloInstruction:
    """Cut dimensions, transpose their parts, join them: one transpose if the borders of both orders nest, else two."""
    before, after = ([p for p in array.order if p.size != 1] for array in (source, target))
    sizes = common_sizes(_sizes(before), _sizes(after))
    if sizes is not None:
        before, after = _refined(before, sizes), _refined(after, sizes)
        order, groups = _grouped(_permutation(before, after))
        if len(groups) <= 1:
            return b.reshape_to(x, target.dims)
        cut = [p.size for p in logical_order(before)]
        x = b.reshape_to(x, [math.prod(cut[i] for i in group) for group in groups])
        return b.reshape_to(b.transpose_by(x, order), target.dims)
    x = b.reshape_to(x, _sizes(logical_order(before)))
    x = b.transpose_by(x, _permutation(before, _row_major(before)))
    x = b.reshape_to(x, _sizes(after))
    x = b.transpose_by(x, _permutation(_row_major(after), after))
    return b.reshape_to(x, target.dims)


def _is_cut(array: Array) -> bool:
    """Return whether tiles cut a dimension into parts."""
    return len(array.order) != len(array.dims)


def _sizes(parts: Sequence[DimensionPart]) -> list[int]:
    return [part.size for part in parts]


def _row_major(parts: Sequence[DimensionPart]) -> list[DimensionPart]:
    """Return dimensions of the same sizes, the first of which lies outermost."""
    return [DimensionPart(d, (), part.size) for d, part in enumerate(parts)]


def _refined(parts: Sequence[DimensionPart], sizes: Sequence[int]) -> list[DimensionPart]:
    """Cut parts so that they have ``sizes``, of which theirs are products in the same order."""
    rest = iter(sizes)
    refined = []
    for part in parts:
        left, i = part.size, 0
        while left > 1:
            size = next(rest)
            refined.append(DimensionPart(part.dimension, (*part.level, i), size))
            left, i = left // size, i + 1
    return refined


def _permutation(before: Sequence[DimensionPart], after: Sequence[DimensionPart]) -> list[int]:
    """Return the transpose between row-major arrays; equal places in ``before`` and ``after`` are one in memory."""
    position = {part: i for i, part in enumerate(logical_order(before))}
    source = {part: before[i] for i, part in enumerate(after)}
    return [position[source[part]] for part in logical_order(after)]


def _grouped(permutation: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Join dimensions that a transpose leaves side by side.

    Returns the transpose of the groups, and the dimensions of each group, in the order of the operand.
    """
    groups: list[list[int]] = []
    for d in permutation:
        if groups and groups[-1][-1] + 1 == d:
            groups[-1].append(d)
        else:
            groups.append([d])
    ordered = sorted(groups)
    position = {group[0]: i for i, group in enumerate(ordered)}
    return [position[group[0]] for group in groups], ordered
