"""Cut an index space into blocks, so that intermediate values of a kernel fit a small scratch buffer."""

from __future__ import annotations

import itertools
import math
from typing import TypeAlias

from spmd.literal import NDArray

#: An index into an array: a slice per dimension, and nothing else.
Block: TypeAlias = tuple[slice, ...]

#: Elements of a block at most: four f32 registers of this size stay in a core's second-level cache.
MAX_BLOCK_ELEMENTS = 32768


def block_dims(dims: tuple[int, ...], max_elements: int) -> tuple[int, ...]:
    """Sizes of the largest block: whole trailing dimensions, part of one dimension, single leading indices."""
    block = list(dims)
    for d in range(len(dims)):
        if math.prod(block) <= max_elements:
            break
        inner = math.prod(dims[d + 1 :])
        block[d] = max(1, max_elements // max(inner, 1))
        if inner <= max_elements:
            break
    return tuple(block)


def part(array: NDArray, block: Block) -> NDArray:
    """The block of ``array``, as an array even where it is a single element."""
    view: NDArray = array[(*block, ...)]  # type: ignore[arg-type]
    return view


def blocks_of(dims: tuple[int, ...], block: tuple[int, ...]) -> list[Block]:
    """All blocks, in row-major order; the last one along a dimension may be smaller."""
    ranges = [
        [slice(start, min(start + step, size)) for start in range(0, size, max(step, 1))]
        for size, step in zip(dims, block, strict=True)
    ]
    return list(itertools.product(*ranges))
