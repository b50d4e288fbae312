"""Pieces of kernels: the tables of what cuts each kind of kernel, and how a range of indices is cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.actions.shared_buffers import private_memory
from runtime.program.blocks import Span
from runtime.program.kernel import Kernel, KernelArrays
from spmd.literal import NDArray
from spmd.registry import Registry

Piece: TypeAlias = tuple[Kernel, KernelArrays]
Cut: TypeAlias = Callable[[Any, KernelArrays, int], Sequence[Piece]]

#: By kernel class: a function that cuts a kernel into at most that many pieces; none if it cannot be cut.
CUTS: Registry[type, Cut] = Registry("cuts of kernels")
#: The same for pieces of one thread, where they differ: a piece must hardly add work, and there may be a few more.
CUTS_IN_TURN: Registry[type, Cut] = Registry("cuts of kernels for one thread")


def spans(size: int, count: int, multiple: int = 1) -> list[Span]:
    """Cut ``size`` indices into at most ``count`` spans of about the same size, all but the last multiples."""
    blocks = -(-size // multiple)
    count = max(1, min(count, blocks))
    ends = [min(size, multiple * (blocks * i // count)) for i in range(count + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]


def bytes_apart(strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the distance of neighbours along each dimension, summed over the arrays with these strides."""
    return [sum(map(abs, own)) for own in zip(*strides, strict=True)]


def longest(dims: Sequence[int], apart: Sequence[int], count: int) -> int | None:
    """Return the dimension to cut into ``count`` pieces: of those with enough indices, the one of the largest stride.

    If none has enough, it is the longest. Dimensions of stride 0 are excluded: all pieces would write the same. None if
    no dimension is left.
    """
    several = [d for d, size in enumerate(dims) if size > 1 and apart[d]]
    enough = [d for d in several if dims[d] >= count]
    if enough:
        return max(enough, key=lambda d: apart[d])
    return max(several, key=lambda d: (dims[d], apart[d]), default=None)


def scratch_like(arrays: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Allocate scratch for a piece, aligned as a device's memory."""
    return tuple(scratch(array.shape, array.dtype) for array in arrays)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    data = private_memory(math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)
