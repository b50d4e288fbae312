"""Gathers with one index vector, with constant indices that count in even steps, of rows of a gather, or of an iota."""

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
    form = p.choose((_one, _even_steps, _of_gather, _of_gather, _of_iota))
    return p.module(p.after(form(p, x)))


def _indices(p: Program, batch: list[int], count: int) -> tuple[HloInstruction, int]:
    """Vectors of ``count`` numbers that are not known, inside the array or not, and their dimension."""
    dimension = p.integer(0, len(batch))
    dims = [*batch[:dimension], count, *batch[dimension:]]
    if count == 1 and p.chance(0.3):
        dims, dimension = batch, len(batch)
    return p.parameter(ArrayShape(p.choose(_INDEX_TYPES), tuple(dims))), dimension


def _offsets(p: Program, window: int, batch: int) -> tuple[int, ...]:
    return tuple(sorted(p.shuffled(range(window + batch))[:window]))


def _of_gather(p: Program, x: HloInstruction) -> HloInstruction:
    """A few of the slices that another gather takes, along one of its batch dimensions."""
    rank = len(x.dims)
    mapped = tuple(p.shuffled(p.some(range(rank), at_least=1)))
    sizes = tuple(p.integer(1, n) for n in x.dims)
    dropped = tuple(d for d, n in enumerate(sizes) if n == 1 and p.chance())
    batch = [p.integer(17, 20), *(p.integer(1, 3) for _ in range(p.integer(0, 1)))]
    vectors, vector_dim = _indices(p, batch, len(mapped))
    offsets = _offsets(p, rank - len(dropped), len(batch))
    inner = p.b.create(
        Opcode.GATHER, (x, vectors), GatherAttrs(offsets, dropped, mapped, vector_dim, sizes)
    )
    d = next(e for e in range(len(inner.dims)) if e not in offsets)
    whole = tuple(1 if e == d else n for e, n in enumerate(inner.dims))
    # So few that their index vectors are fewer bytes than the elements, whatever their types.
    few = [1] if len(mapped) > 1 or p.chance() else [1, 1]
    chosen, chosen_dim = _indices(p, few, 1)
    attrs = GatherAttrs(_offsets(p, len(whole) - 1, len(few)), (d,), (d,), chosen_dim, whole)
    return p.b.create(Opcode.GATHER, (inner, chosen), attrs)


def _of_iota(p: Program, x: HloInstruction) -> HloInstruction:
    d = p.integer(0, len(x.dims) - 1)
    kind = p.choose((PrimitiveType.F32, PrimitiveType.S32, PrimitiveType.BF16, PrimitiveType.S8))
    iota = p.b.iota(kind, x.dims, d)
    mapped = p.shuffled([d, *p.some([e for e in range(len(x.dims)) if e != d])])
    sizes = tuple(1 if e == d else p.integer(1, n) for e, n in enumerate(x.dims))
    dropped = tuple(e for e, n in enumerate(sizes) if n == 1 and p.chance())
    batch = [p.integer(1, 4) for _ in range(p.integer(0, 2))]
    vectors, vector_dim = _indices(p, batch, len(mapped))
    offsets = _offsets(p, len(sizes) - len(dropped), len(batch))
    attrs = GatherAttrs(offsets, dropped, tuple(mapped), vector_dim, sizes)
    return p.b.create(Opcode.GATHER, (iota, vectors), attrs)


def _one(p: Program, x: HloInstruction) -> HloInstruction:
    """Return a gather at a constant index vector, inside the array or not."""
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
    """Return a gather at even steps in one or two batch dimensions.

    These are before, behind or between the dimensions that are taken whole.
    """
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
