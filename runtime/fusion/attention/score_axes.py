"""Views of values along the dimensions of a score matrix: through broadcasts, and reshapes by dimensions of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs

#: Score dimension of each dimension of a value; None for a dimension of size 1 that the score matrix does not have.
Axes: TypeAlias = tuple[int | None, ...]


def all_axes(x: HloInstruction) -> Axes:
    """Return the axes of a value that has exactly the score dimensions."""
    return tuple(range(len(x.dims)))


def source(x: HloInstruction, axes: Axes) -> tuple[HloInstruction, Axes]:
    """Return the value that ``x`` repeats or rearranges along the score dimensions, and its axes."""
    while True:
        inner = _operand_axes(x, axes)
        if inner is None:
            return x, axes
        x, axes = x.operand(0), inner


def _operand_axes(x: HloInstruction, axes: Axes) -> Axes | None:
    """Return the axes of the operand of ``x`` if ``x`` is a view of it, else None."""
    if x.opcode is Opcode.BROADCAST:
        return tuple(axes[d] for d in x.attrs_as(DimensionsAttrs).dimensions)
    if x.opcode is Opcode.TRANSPOSE:
        order = x.attrs_as(DimensionsAttrs).dimensions
        return tuple(axes[order.index(d)] for d in range(len(order)))
    if x.opcode is Opcode.RESHAPE:
        return _reshaped(x.dims, axes, x.operand(0).dims)
    return None


def _reshaped(dims: Sequence[int], axes: Axes, inner: Sequence[int]) -> Axes | None:
    """Return the axes of a value of sizes ``inner`` that is reshaped to ``dims``.

    The result is None if the two differ by more than dimensions of size 1.
    """
    long = [d for d, n in enumerate(dims) if n != 1]
    if [dims[d] for d in long] != [n for n in inner if n != 1]:
        return None
    remaining = iter(long)
    return tuple(axes[next(remaining)] if n != 1 else None for n in inner)


def varies_along(x: HloInstruction, axes: Axes, dimension: int) -> bool:
    """Return whether ``x`` has a dimension along score dimension ``dimension``."""
    return dimension in axes and x.dims[axes.index(dimension)] != 1
