"""Gathers with one index vector, or with constant indices that count in even steps."""

from __future__ import annotations

import numpy as np

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.literal import Literal
from spmd.ops.attrs import GatherAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_INDEX_TYPES = (PrimitiveType.S32, PrimitiveType.S32, PrimitiveType.S8, PrimitiveType.U8)


@trigger("gather-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    x = p.value(p.element_type(), p.dims(1, empty=False))
    return p.module(p.after(_one(p, x) if p.chance() else _even_steps(p, x)))


def _one(p: Program, x: HloInstruction) -> HloInstruction:
    """At a constant index vector, inside the array or not."""
    rank = len(x.dims)
    mapped = p.shuffled(p.some(range(rank), at_least=1))
    sizes = tuple(p.integer(1, n) for n in x.dims)
    dropped = tuple(d for d, n in enumerate(sizes) if n == 1 and p.chance())
    ones = (1,) * p.integer(0, 2)
    vector_dim = p.integer(0, len(ones))
    if len(mapped) == 1 and p.chance(0.3):
        vector_dim, dims = len(ones), ones
    else:
        dims = (*ones[:vector_dim], len(mapped), *ones[vector_dim:])
    window = rank - len(dropped)
    offset_dims = tuple(sorted(p.shuffled(range(window + len(ones)))[:window]))
    attrs = GatherAttrs(offset_dims, dropped, tuple(mapped), vector_dim, sizes)
    return p.b.create(Opcode.GATHER, (x, _vector(p, dims)), attrs)


def _vector(p: Program, dims: tuple[int, ...]) -> HloInstruction:
    kind = p.choose(_INDEX_TYPES)
    low = -3 if kind.is_signed_integer else 0
    if p.chance(0.3):
        return p.b.full(ArrayShape(kind, dims), p.integer(low, 12))
    values = np.asarray(p.rng.integers(low, 12, dims)).astype(kind.numpy)
    return p.b.constant(Literal.of(ArrayShape(kind, dims), values))


def _even_steps(p: Program, x: HloInstruction) -> HloInstruction:
    """In one or two batch dimensions, before, behind or between what is taken whole."""
    d = p.integer(0, len(x.dims) - 1)
    step = p.choose((1, 2, 3)) * p.choose((1, -1))
    count = p.choose(((2,), (3,), (2, 2), (6,)))
    # Padded to hold every index: clamped ones would be equal.
    start = p.integer(0, 3) + (abs(step) * (int(np.prod(count)) - 1) if step < 0 else 0)
    places = start + step * np.arange(int(np.prod(count)))
    low, high = [0] * len(x.dims), [0] * len(x.dims)
    high[d] = max(0, int(places.max()) + 1 - x.dims[d])
    table = p.b.pad(x, p.b.scalar_like(x, 0), low, high)
    kind = p.choose(_INDEX_TYPES)
    dims = (*count, 1) if p.chance() else count
    values = places.reshape(dims).astype(kind.numpy)
    indices = p.b.constant(Literal.of(ArrayShape(kind, dims), values))
    sizes = tuple(1 if i == d else n for i, n in enumerate(table.dims))
    dropped = (d,) if p.chance(0.7) else ()
    kept = len(sizes) - len(dropped)
    front = p.integer(0, kept)
    offset_dims = (*range(front), *range(front + len(count), kept + len(count)))
    attrs = GatherAttrs(offset_dims, dropped, (d,), len(count), sizes)
    return p.b.create(Opcode.GATHER, (table, indices), attrs)
