"""Blocks of an index space: parts of a product that are computed one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class Span:
    """Indices ``start`` to ``stop`` of a dimension."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def of(self, array: NDArray, dimension: int) -> NDArray:
        """Return the part of ``array`` at these indices of ``dimension``."""
        index = (slice(None),) * dimension + (slice(self.start, self.stop),)
        part: NDArray = array[index]
        return part


#: First index and end along each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


def blocks_of(region: Box, block: Sequence[int]) -> Iterator[Box]:
    """Return the blocks of sizes ``block`` that cover ``region``, in row-major order. The last ones may be smaller."""
    spans = [
        [(at, min(at + step, stop)) for at in range(start, stop, step)]
        for (start, stop), step in zip(region, block, strict=True)
    ]
    return itertools.product(*spans)
