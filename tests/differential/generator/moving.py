"""Operations that move elements: broadcast, reshape, transpose, slices, pads, concatenation, reverse, iota."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spmd.hlo import HloInstruction, Opcode
from spmd.shape import PrimitiveType
from tests.differential.factors.table import SPLIT
from tests.differential.generator.table import operation
from tests.differential.generator.writer import MAX_ELEMENTS, S32, U32, Value, Writer


@operation(4, Opcode.BROADCAST)
def broadcast(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    rank = w.integer(max(1, x.rank), min(4, x.rank + 2))
    places = sorted(w.shuffled(range(rank))[: x.rank])
    result = list(w.dims(rank))
    for place, size in zip(places, x.dims, strict=True):
        result[place] = size
    if math.prod(result) > MAX_ELEMENTS:
        return None
    return w.keep(w.result(w.builder.broadcast(x.hlo, places, result), x.bound, x))


@operation(4, Opcode.RESHAPE)
def reshape(w: Writer) -> Value | None:
    """Dimensions merged, split, or both at once."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    dims = list(x.dims)
    for _ in range(w.integer(1, 3)):
        at = w.integer(0, len(dims) - 1) if dims else 0
        move = w.choose(("merge", "split", "one", "drop"))
        if dims and w.wants(Opcode.RESHAPE, SPLIT) and w.chance(0.6):
            move, at = "split", max(range(len(dims)), key=lambda d: _is_composite(dims[d]))
        if move == "merge" and at + 1 < len(dims):
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        elif move == "split" and dims and len(dims) < 5:
            factors = [f for f in range(1, dims[at] + 1) if dims[at] % f == 0]
            factors = [f for f in factors if f not in (1, dims[at])] or factors
            if factors:
                factor = w.choose(factors)
                dims[at : at + 1] = [factor, dims[at] // factor]
        elif move == "one" and len(dims) < 5:
            dims.insert(at, 1)
        elif move == "drop" and 1 in dims:
            dims.remove(1)
    if w.chance(0.1):
        dims = [math.prod(dims)]
    return w.keep(w.result(w.builder.reshape(x.hlo, dims), x.bound, x))


def _is_composite(n: int) -> bool:
    return any(n % f == 0 for f in range(2, n))


@operation(3, Opcode.TRANSPOSE)
def transpose(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 1)
    if x is None:
        return None
    return w.keep(w.result(w.builder.transpose(x.hlo, w.shuffled(range(x.rank))), x.bound, x))


@operation(1, Opcode.REVERSE)
def reverse(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    return w.keep(w.result(w.builder.reverse(x.hlo, w.some(range(x.rank), 1)), x.bound, x))


@operation(2, Opcode.SLICE)
def slice_(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    starts, limits, strides = [], [], []
    for size in x.dims:
        whole = w.chance(0.5)
        start = 0 if whole else w.integer(0, size)
        starts.append(start)
        limits.append(size if whole else w.integer(start, size))
        strides.append(1 if whole else w.integer(1, 3))
    return w.keep(w.result(w.builder.slice(x.hlo, starts, limits, strides), x.bound, x))


@operation(2, Opcode.PAD)
def pad(w: Writer) -> Value | None:
    """Low and high may be negative, interior padding between elements."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    low, high, interior = [], [], []
    for size in x.dims:
        untouched = w.chance(0.5)
        between = 0 if untouched or w.chance(0.7) else w.integer(1, 2)
        ends = [0, 0] if untouched else [w.integer(-2, 3), w.integer(-2, 3)]
        if sum(ends) + size + max(0, size - 1) * between < 0 or min(ends) < -size:
            ends = [0, 0]
        low.append(ends[0])
        high.append(ends[1])
        interior.append(between)
    fill = w.of(x.dtype, ())
    if math.prod(x.dims) > MAX_ELEMENTS // 2:
        return None
    hlo = w.builder.pad(x.hlo, fill.hlo, low, high, interior)
    return w.keep(w.result(hlo, max(x.bound, fill.bound), x, fill))


@operation(2, Opcode.CONCATENATE)
def concatenate(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0)
    if x is None or math.prod(x.dims) > MAX_ELEMENTS // 3:
        return None
    at = w.integer(0, x.rank - 1)
    rest = x.dims[:at] + x.dims[at + 1 :]
    parts = [x]
    for _ in range(w.integer(1, 2)):
        other = w.pick(
            lambda v: (
                v.dtype is x.dtype and v.rank == x.rank and v.dims[:at] + v.dims[at + 1 :] == rest
            )
        )
        parts.append(other if other is not None else w.of(x.dtype, x.dims))
    parts = w.shuffled(parts)
    hlo = w.builder.concatenate([p.hlo for p in parts], at)
    return w.keep(w.result(hlo, max(p.bound for p in parts), *parts))


def _starts(w: Writer, sizes: tuple[int, ...], parts: Sequence[int]) -> list[HloInstruction]:
    """Start indices, all of one type: mostly s32."""
    starts = [w.index(n - s) for n, s in zip(sizes, parts, strict=True)]
    if w.chance(0.15):
        kind = w.choose((U32, PrimitiveType.S64))
        starts = [w.builder.convert(start, kind) for start in starts]
    return starts


@operation(2, Opcode.DYNAMIC_SLICE)
def dynamic_slice(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    sizes = [n if w.chance(0.5) else w.integer(min(1, n), n) for n in x.dims]
    starts = _starts(w, x.dims, sizes)
    return w.keep(w.result(w.builder.dynamic_slice(x.hlo, starts, sizes), x.bound, x))


@operation(2, Opcode.DYNAMIC_UPDATE_SLICE)
def dynamic_update_slice(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    sizes = tuple(n if w.chance(0.5) else w.integer(min(1, n), n) for n in x.dims)
    starts = _starts(w, x.dims, sizes)
    update = w.of(x.dtype, sizes)
    hlo = w.builder.dynamic_update_slice(x.hlo, update.hlo, starts)
    return w.keep(w.result(hlo, max(x.bound, update.bound), x, update))


@operation(1, Opcode.CONCATENATE)
def shift(w: Writer) -> Value | None:
    """A rotation by one, as jnp.roll writes it: two slices joined the other way round."""
    x = w.pick(lambda v: v.rank > 0 and min(v.dims) > 1)
    if x is None:
        return None
    b, at = w.builder, w.integer(0, x.rank - 1)
    zeros, cut = [0] * x.rank, list(x.dims)
    cut[at] = by = w.integer(1, x.dims[at] - 1)
    start = list(zeros)
    start[at] = by
    hlo = b.concatenate([b.slice(x.hlo, start, x.dims), b.slice(x.hlo, zeros, cut)], at)
    return w.keep(w.result(hlo, x.bound, x))


@operation(1, Opcode.IOTA)
def iota(w: Writer) -> Value | None:
    dims = w.dims(w.integer(1, 3))
    at = w.integer(0, len(dims) - 1)
    return w.keep(Value(w.builder.iota(S32, dims, at), float(dims[at]), True, True))


@operation(0.5, Opcode.OPT_BARRIER, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT)
def barrier(w: Writer) -> Value | None:
    """opt-barrier over a tuple of two values, and a copy."""
    x, y = w.pick(), w.pick()
    if x is None or y is None:
        return None
    b = w.builder
    both = b.create(Opcode.OPT_BARRIER, (b.tuple([x.hlo, y.hlo]),))
    w.pool.append(replace(x, hlo=b.get_tuple_element(both, 0)))
    return w.keep(replace(y, hlo=b.copy(b.get_tuple_element(both, 1))))
