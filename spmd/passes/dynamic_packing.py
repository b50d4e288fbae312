"""The elements of an array with run-time sizes in another shape: dynamic-reshape on arrays at their bounds."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import GatherAttrs
from spmd.shape import PrimitiveType

_S32 = PrimitiveType.S32


def repacked(
    b: Builder,
    x: HloInstruction,
    old_sizes: Sequence[HloInstruction],
    new_sizes: Sequence[HloInstruction],
    bounds: tuple[int, ...],
) -> HloInstruction:
    """Return the elements of ``x`` within ``old_sizes`` in an array of ``bounds``, within ``new_sizes``, in row-major
    order.

    Both sizes have as many elements, at most 2^31 - 1. The elements of the result beyond its sizes are arbitrary. Sizes
    are s32 scalars, one for each dimension.
    """
    if not x.array_shape.num_elements:
        return b.reshape(x, bounds)
    number = _number(b, new_sizes, bounds)
    index = _linear_index(b, number, old_sizes, x.dims)
    attrs = GatherAttrs((), (0,), (0,), len(bounds), (1,))
    return b.create(Opcode.GATHER, (b.reshape(x, (x.array_shape.num_elements,)), index), attrs)


def _number(b: Builder, sizes: Sequence[HloInstruction], bounds: tuple[int, ...]) -> HloInstruction:
    """Return, as s32[bounds], how many elements precede each element in row-major order of an array of ``sizes``."""
    number = b.broadcast_scalar(b.scalar(_S32, 0), bounds)
    for d, size in enumerate(sizes):
        number = b.multiply(number, b.broadcast_scalar(size, bounds))
        number = b.add(number, b.iota(_S32, bounds, d))
    return number


def _linear_index(
    b: Builder, number: HloInstruction, sizes: Sequence[HloInstruction], bounds: tuple[int, ...]
) -> HloInstruction:
    """Return the index within ``bounds`` of element ``number`` of an array whose true sizes are ``sizes``."""
    index = b.broadcast_scalar(b.scalar(_S32, 0), number.dims)
    stride = 1
    for size, bound in zip(reversed(sizes), reversed(bounds), strict=True):
        count = b.broadcast_scalar(size, number.dims)
        step = b.broadcast_scalar(b.scalar(_S32, stride), number.dims)
        index = b.add(index, b.multiply(b.remainder(number, count), step))
        number = b.divide(number, count)
        stride *= bound
    return index
