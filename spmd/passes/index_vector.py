"""The index vectors of gathers and scatters: how many, and one vector's components as start indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction


def index_count(indices: HloInstruction, index_vector_dim: int) -> int:
    """How many index vectors ``indices`` holds; ``index_vector_dim`` may be its rank (vectors of one component)."""
    return math.prod(n for d, n in enumerate(indices.dims) if d != index_vector_dim)


def full_starts(
    b: Builder, indices: HloInstruction, index_map: Sequence[int], rank: int
) -> list[HloInstruction]:
    """The only index vector as one scalar for each of ``rank`` dimensions; 0 in those that it does not index.

    ``index_map``: the dimension that each component indexes.
    """
    zero = b.scalar_like(indices, 0)
    flat = b.reshape(indices, (len(index_map),))
    starts = [zero] * rank
    for k, dimension in enumerate(index_map):
        starts[dimension] = b.reshape(b.slice(flat, (k,), (k + 1,)), ())
    return starts
