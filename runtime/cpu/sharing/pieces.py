"""Pieces of kernels: the tables of what cuts each kind of kernel, and how a range of indices is cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.memory import private_memory
from runtime.program.blocks import Span
from runtime.program.kernel import Kernel, KernelArrays
from spmd.literal import NDArray
from spmd.registry import Registry

Piece: TypeAlias = tuple[Kernel, KernelArrays]
Cut: TypeAlias = Callable[[Any, KernelArrays, int], Sequence[Piece]]

#: By kind of kernel: what cuts it into so many pieces or fewer; into none where it cannot.
CUTS: Registry[type, Cut] = Registry("cuts of kernels")
#: Other ones where these are better for a single thread, for which a piece must hardly add to the work; it may be cut
#: into a few more.
CUTS_IN_TURN: Registry[type, Cut] = Registry("cuts of kernels for one thread")


def spans(size: int, count: int, multiple: int = 1) -> list[Span]:
    """``size`` indices as ``count`` spans or fewer, of about the same size; all but the last one multiples."""
    blocks = -(-size // multiple)
    count = max(1, min(count, blocks))
    ends = [min(size, multiple * (blocks * i // count)) for i in range(count + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]


def bytes_apart(strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the distance of neighbours along each dimension, summed over the arrays with these strides."""
    return [sum(map(abs, own)) for own in zip(*strides, strict=True)]


def longest(dims: Sequence[int], apart: Sequence[int], count: int) -> int | None:
    """The dimension to cut ``count`` times: the one with neighbours farthest apart that has so many indices.

    Where none has, the one with most. Not one that nothing is written along: all pieces would write the same.
    """
    several = [d for d, size in enumerate(dims) if size > 1 and apart[d]]
    enough = [d for d in several if dims[d] >= count]
    if enough:
        return max(enough, key=lambda d: apart[d])
    return max(several, key=lambda d: (dims[d], apart[d]), default=None)


def scratch_like(arrays: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Scratch of a piece's own, as a device's memory is aligned."""
    return tuple(scratch(array.shape, array.dtype) for array in arrays)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    data = private_memory(math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)
