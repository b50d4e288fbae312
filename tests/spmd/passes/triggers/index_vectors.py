"""Random gathers and scatters of one window, for the triggers of passes about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd.hlo import HloInstruction
from spmd.literal import Literal
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program

INDEX_TYPES = (PrimitiveType.S32, PrimitiveType.S32, PrimitiveType.S8, PrimitiveType.U8)


@dataclass(frozen=True)
class OneVector:
    """An index vector for arrays of ``dims``: it indexes ``map``; windows of ``sizes``, ``dropped`` ones of size 1."""

    indices: HloInstruction
    index_vector_dim: int
    map: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def batch_rank(self) -> int:
        rank = len(self.indices.dims)
        return rank - (self.index_vector_dim < rank)


def one_vector(p: Program, dims: tuple[int, ...]) -> OneVector:
    """Of random components, inside the array or not; a parameter or constant."""
    mapped = p.shuffled(p.some(range(len(dims)), at_least=1))
    sizes = tuple(p.integer(1, n) for n in dims)
    dropped = tuple(d for d, n in enumerate(sizes) if n == 1 and p.chance())
    kind = p.choose(INDEX_TYPES)
    ones = (1,) * p.integer(0, 2)
    vector_dim = p.integer(0, len(ones))
    bare = len(mapped) == 1 and p.chance(0.3)
    index_dims = ones if bare else (*ones[:vector_dim], len(mapped), *ones[vector_dim:])
    low = -3 if kind.is_signed_integer else 0
    shape = ArrayShape(kind, index_dims)
    values = p.rng.integers(low, 12, index_dims)
    constant = p.b.constant(Literal.of(shape, np.asarray(values).astype(kind.numpy)))
    indices = constant if p.chance(0.3) else p.b.add(p.parameter(shape), constant)
    return OneVector(indices, len(ones) if bare else vector_dim, tuple(mapped), sizes, dropped)
