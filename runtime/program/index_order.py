"""Order in which a loop runs through its dimensions, and merging of dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Protocol

#: Least size of the two innermost dimensions if a loop runs over tiles of both: along a shorter one tiles do not pay.
LEAST_TILED = 8
#: Innermost size below which elements fill too little of a vector (as the coordinates in [n,3]); least size that fills
#: one; largest stride in bytes (a cache line) at which a loop may read elements that are not neighbours.
FEW_NEIGHBOURS, VECTOR_LENGTH, MOST_STRIDE = 8, 16, 64


class Strided(Protocol):
    """Bytes from element to element along each dimension, and those of an element."""

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def item(self) -> int: ...


def in_streaming_order(dims: Sequence[int], arrays: Sequence[Strided], inputs: int) -> list[int]:
    """Return the dimensions, slowest first. Most bytes are neighbours along the last one, then along the one before it.

    An array counts with the bytes that it stores: a row that is broadcast to all columns counts once.
    ``arrays[:inputs]`` are read, the others written, which counts double: a line of cache is fetched to be written.
    The other dimensions are sorted by the strides of the last array, a result, largest first.
    """
    order = sorted(range(len(dims)), key=lambda d: -abs(arrays[-1].strides[d]))
    wide = [d for d in order if dims[d] > 1]
    if not wide:
        return order

    weights = [1] * inputs + [2] * (len(arrays) - inputs)
    moved = [
        weight * array.item * math.prod(dims[d] for d in wide if array.strides[d])
        for weight, array in zip(weights, arrays, strict=True)
    ]

    def packed_bytes(d: int) -> int:
        each = zip(moved, arrays, strict=True)
        return sum(size for size, array in each if array.strides[d] == array.item)

    inner = max(reversed(wide), key=packed_bytes)
    others = [d for d in wide if d != inner and packed_bytes(d)]
    last = [inner] if not others else [max(reversed(others), key=packed_bytes), inner]
    return [d for d in order if d not in last] + last


def merged_dims(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Merge dimensions as far as the strides of all arrays allow. Returns the sizes, and the strides of each array."""
    sizes: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(dims):
        if size == 1:
            continue
        if sizes and all(
            own[-1] == size * each[d] for own, each in zip(merged_strides, strides, strict=True)
        ):
            sizes[-1] *= size
            for own, each in zip(merged_strides, strides, strict=True):
                own[-1] = each[d]
        else:
            sizes.append(size)
            for own, each in zip(merged_strides, strides, strict=True):
                own.append(each[d])
    assert math.prod(sizes) == math.prod(dims)
    return sizes, merged_strides


def merged_apart(
    dims: Sequence[int], strides: Sequence[Sequence[int]], apart: Collection[int]
) -> tuple[list[int], list[list[int]], dict[int, int]]:
    """Merge as ``merged_dims`` does, except the dimensions ``apart``. Also returns the new number of each of those."""
    sizes: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in strides]
    positions = {}
    edges = [-1, *sorted(apart), len(dims)]
    for before, edge in itertools.pairwise(edges):
        between = range(before + 1, edge)
        merged, own = merged_dims(
            [dims[d] for d in between], [[s[d] for d in between] for s in strides]
        )
        if edge < len(dims):
            positions[edge] = len(sizes) + len(merged)
            merged, own = (
                [*merged, dims[edge]],
                [[*o, s[edge]] for o, s in zip(own, strides, strict=True)],
            )
        sizes += merged
        for all_of_one, more in zip(merged_strides, own, strict=True):
            all_of_one += more
    return sizes, merged_strides, positions
