"""Registries of the functions that cut kernels into pieces, and the choice of a dimension and spans for a cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from collectives.communicator.actions.shared_buffers import private_array
from runtime.program.blocks import Span
from runtime.program.kernel import Kernel, KernelArrays
from spmd.literal import NDArray
from spmd.registry import Registry

Piece: TypeAlias = tuple[Kernel, KernelArrays]
Cut: TypeAlias = Callable[[Any, KernelArrays, int], Sequence[Piece]]

#: Functions (kernel, arrays, count) by kernel class that cut a kernel into at most ``count`` pieces for concurrent
#: threads. They return no pieces if the kernel cannot be cut.
CUTS: Registry[type, Cut] = Registry("cuts of kernels")
#: Functions by kernel class, if other than those of ``CUTS``, that cut a kernel into about ``count`` pieces for one
#: thread to compute in turn. These pieces must add hardly any work.
CUTS_IN_TURN: Registry[type, Cut] = Registry("cuts of kernels for one thread")


def spans(size: int, count: int, multiple: int = 1) -> list[Span]:
    """Cut ``range(size)`` into at most ``count`` consecutive spans of about equal size.

    The sizes of all spans but the last are multiples of ``multiple``.
    """
    blocks = -(-size // multiple)
    count = max(1, min(count, blocks))
    ends = [min(size, multiple * (blocks * i // count)) for i in range(count + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]


def bytes_apart(strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the distance in bytes of neighbours along each dimension, summed over the arrays with these strides."""
    return [sum(map(abs, own)) for own in zip(*strides, strict=True)]


def longest(dims: Sequence[int], apart: Sequence[int], count: int) -> int | None:
    """Return the dimension along which to cut results of sizes ``dims`` into ``count`` pieces.

    It is the dimension with the largest stride ``apart`` among those of at least ``count`` indices. If there is none,
    it is the dimension with the most indices. Dimensions of size 1 are excluded, and those of stride 0, along which all
    pieces would write the same elements. Returns None if no dimension is left.
    """
    several = [d for d, size in enumerate(dims) if size > 1 and apart[d]]
    enough = [d for d in several if dims[d] >= count]
    if enough:
        return max(enough, key=lambda d: apart[d])
    return max(several, key=lambda d: (dims[d], apart[d]), default=None)


def scratch_like(arrays: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Allocate scratch arrays for a piece, with the shapes and types of ``arrays``."""
    return tuple(private_array(array.shape, array.dtype) for array in arrays)
