"""Axes of the index space that a Triton kernel computes on, and the blocks that one program covers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from spmd.lazy_dataclass import dataclass


class AxisKind(IntEnum):
    """Kind of an axis. Tiles have their dimensions in the order GRID, LOOP, DEPTH.

    BATCH: a program has one index. STEP: a batch axis that the program's loop sums over. GRID: each program has one
    block of it (rows of scores, or columns for the gradients of keys and values). LOOP: the program's loop runs over
    its blocks. DEPTH: contracted by a score product, or free in the other operand of a sink; a tile covers all of it.
    """

    BATCH = 0
    STEP = 1
    GRID = 2
    LOOP = 3
    DEPTH = 4


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of ``size`` indices. number: the score dimension that it is; 0 for DEPTH, whose axes differ by size only."""

    kind: AxisKind
    size: int
    number: int = 0

    @property
    def is_vector(self) -> bool:
        """True if tiles have a dimension for the axis."""
        return self.kind >= AxisKind.GRID

    @property
    def varies_in_loop(self) -> bool:
        """True if the index of the axis differs between iterations of the program's loop."""
        return self.kind in (AxisKind.STEP, AxisKind.LOOP)


#: Axis of each dimension of a value, in the order of its dimensions.
Axes: TypeAlias = tuple[Axis, ...]


def tile_axes(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the axes that a tile of a value with ``axes`` has dimensions for, in the tile's order."""
    return tuple(sorted((axis for axis in axes if axis.is_vector), key=lambda axis: axis.kind))


def expanded(name: str, axes: Sequence[Axis], target: Sequence[Axis]) -> str:
    """Return the expression of tile ``name`` along ``axes`` with dimensions of size 1, to fit ``target``."""
    if len(axes) in (0, len(target)):
        return name
    index = ", ".join(":" if axis in axes else "None" for axis in target)
    return f"{name}[{index}]"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of the blocks of the GRID and LOOP axes, and how the kernel is compiled.

    warps: warps of a program. stages: iterations whose loads are in flight at once.
    """

    grid: int
    loop: int
    warps: int
    stages: int

    def length(self, axis: Axis) -> int:
        """Return the size of a tile along ``axis``, a power of two and at least 16, as tensor cores require."""
        if axis.kind is AxisKind.DEPTH:
            return padded(axis.size)
        return self.grid if axis.kind is AxisKind.GRID else self.loop

    def is_partial(self, axis: Axis) -> bool:
        """Return whether some tile reaches beyond the end of ``axis``."""
        return axis.size % self.length(axis) != 0


def padded(size: int) -> int:
    """Return the smallest power of two that is at least ``size`` and 16."""
    return max(16, 1 << (size - 1).bit_length())
