"""Score dimensions of the dimensions of values, through views: broadcasts, transposes, and reshapes by sizes of 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.dot import free_dims

#: Score dimension of each dimension of a value; None for a dimension of size 1, which score matrices do not have.
Axes: TypeAlias = tuple[int | None, ...]


def source(x: HloInstruction, axes: Axes) -> tuple[HloInstruction, Axes]:
    """Return the value that ``x`` repeats or rearranges along the score dimensions, and its axes."""
    while True:
        inner = operand_axes(x, axes)
        if inner is None:
            return x, axes
        x, axes = x.operand(0), inner


def operand_axes(x: HloInstruction, axes: Axes) -> Axes | None:
    """Return the axes of the operand of ``x`` if ``x`` is a view of it, else None."""
    if x.opcode is Opcode.BROADCAST:
        return tuple(axes[d] for d in x.attrs_as(DimensionsAttrs).dimensions)
    if x.opcode is Opcode.TRANSPOSE:
        order = x.attrs_as(DimensionsAttrs).dimensions
        return tuple(axes[order.index(d)] for d in range(len(order)))
    if x.opcode is Opcode.RESHAPE:
        return _reshaped(x.dims, axes, x.operand(0).dims)
    return None


def result_axes(x: HloInstruction, axes: Axes) -> Axes | None:
    """Return the axes of ``x`` if it transposes an operand with ``axes`` or reshapes it by sizes of 1, else None."""
    if x.opcode is Opcode.TRANSPOSE:
        return tuple(axes[d] for d in x.attrs_as(DimensionsAttrs).dimensions)
    if x.opcode is Opcode.RESHAPE:
        return _reshaped(x.operand(0).dims, axes, x.dims)
    return None


def _reshaped(dims: Sequence[int], axes: Axes, reshaped: Sequence[int]) -> Axes | None:
    """Return the axes of a value with ``axes`` and sizes ``dims`` after it is reshaped to sizes ``reshaped``.

    The result is None if they differ by more than sizes of 1.
    """
    long = [d for d, n in enumerate(dims) if n != 1]
    if [dims[d] for d in long] != [n for n in reshaped if n != 1]:
        return None
    remaining = iter(long)
    return tuple(axes[next(remaining)] if n != 1 else None for n in reshaped)


def product_axes(known: Axes, batch: Sequence[int], contracting: Sequence[int], free: Axes) -> Axes:
    """Return the axes of one factor of a product.

    known: axes of the product's batch dimensions, followed by those of its contracted dimensions. batch, contracting:
    dimensions of the factor. free: axes of all other ones.
    """
    rank = len(batch) + len(contracting) + len(free)
    axes = dict(zip((*batch, *contracting), known, strict=True))
    axes.update(zip(free_dims(rank, tuple(batch), tuple(contracting)), free, strict=True))
    return tuple(axes[d] for d in range(rank))
