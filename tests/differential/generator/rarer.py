"""Operations that are met less often: map, shifts, reduce-precision, select-and-scatter, topk, cumulative sums, ..."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from spmd.device import ReductionKind
from spmd.hlo import HloComputation, Opcode
from spmd.hlo.opcode import ReducePrecisionAttrs
from spmd.literal import Literal
from spmd.ops.attrs import (
    DimensionsAttrs,
    DomainAttrs,
    RngBitGeneratorAttrs,
    ScatterAttrs,
    TopKAttrs,
)
from spmd.shape import ArrayShape, Layout, PrimitiveType, TupleShape
from tests.differential.factors.table import MERGE, SPLIT, WHOLE
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, S32, U8, U32, U64, Value, Writer


def function(w: Writer, name: str, types: list[PrimitiveType]) -> Writer:
    """A new computation of scalars, standing before its caller; its parameters are the pool."""
    computation = w.module.new_computation(name)
    w.module.computations.insert(0, w.module.computations.pop())
    b = w.builder.within(computation)
    pool = [Value(b.parameter(n, ArrayShape(t, ())), 1.0) for n, t in enumerate(types)]
    return Writer(w.rng, w.module, b, w.mesh, w.style, pool=pool)


@operation(0.5, Opcode.MAP)
def map_(w: Writer) -> Value | None:
    """x * y + x, element by element."""
    x = w.pick(lambda v: v.dtype in (F32, S32) and v.rank > 0)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    f = function(w, "multiply_add", [x.dtype, x.dtype])
    a, c = (v.hlo for v in f.pool)
    f.builder.computation.root = f.builder.add(f.builder.multiply(a, c), a)
    hlo = w.builder.create(
        Opcode.MAP,
        (x.hlo, y.hlo),
        DimensionsAttrs(tuple(range(x.rank))),
        calls=(f.builder.computation,),
    )
    bound = x.bound * (y.bound + 1) if x.is_float else math.inf
    return w.keep(w.result(hlo, bound, x, y))


_SHIFTS = (Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_LOGICAL, Opcode.SHIFT_RIGHT_ARITHMETIC)


@operation(0.5, *_SHIFTS)
def shift_bits(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.dtype in (S32, U32)) or w.fitting(S32)
    b = w.builder
    by = b.broadcast_scalar(b.scalar(x.dtype, 7), x.dims)
    by = b.logical_and(w.of(x.dtype, x.dims).hlo, by)
    return w.keep(Value(b.binary(w.opcode(*_SHIFTS), x.hlo, by), math.inf))


@operation(0.5, Opcode.REDUCE_PRECISION)
def reduce_precision(w: Writer) -> Value | None:
    """Rounding decides, so a stable value is needed for a stable result."""
    x = w.pick(lambda v: v.dtype is F32 and v.stable)
    if x is None:
        return None
    hlo = w.builder.create(Opcode.REDUCE_PRECISION, (x.hlo,), ReducePrecisionAttrs(8, 7))
    return w.keep(Value(hlo, 2 * x.bound, x.whole and x.bound <= 64, True))


@operation(1, Opcode.TOPK)
def topk(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and v.stable and v.dims[-1] > 0)
    if x is None:
        return None
    attrs = TopKAttrs(w.integer(1, x.dims[-1]), w.chance(0.8))
    hlo = w.builder.create(Opcode.TOPK, (x.hlo,), attrs)
    w.keep(w.result(w.builder.get_tuple_element(hlo, 0), x.bound, x))
    return w.keep(Value(w.builder.get_tuple_element(hlo, 1), float(x.dims[-1])))


@operation(1, Opcode.SCATTER)
def scatter_assign(w: Writer) -> Value | None:
    """Rows of an operand overwritten at places of their own: the last update stays, so no two may meet."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    at = w.integer(0, x.rank - 1)
    count = w.integer(1, x.dims[at])
    b = w.builder
    ids = b.iota(S32, (count,), 0)
    if w.chance(0.5):
        last = b.broadcast_scalar(b.scalar(S32, x.dims[at] - 1), (count,))
        ids = b.subtract(last, ids)
    rest = tuple(n for d, n in enumerate(x.dims) if d != at)
    updates = w.of(x.dtype, (count, *rest))
    f = function(w, "second", [x.dtype, x.dtype])
    f.builder.computation.root = f.pool[1].hlo
    attrs = ScatterAttrs(tuple(range(1, x.rank)), (at,), (at,), 1)
    hlo = b.create(Opcode.SCATTER, (x.hlo, ids, updates.hlo), attrs, calls=(f.builder.computation,))
    return w.keep(w.result(hlo, max(x.bound, updates.bound), x, updates))


@operation(1, Opcode.REDUCE)
def reduce_pair(w: Writer) -> Value | None:
    """Two reductions in one: a sum and a maximum, or the element with the smallest key."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is S32 and 0 not in v.dims)
    if x is None:
        return None
    y = w.of(S32, x.dims)
    dims = tuple(w.some(range(x.rank), 1))
    chooses = w.chance(0.5)
    f = function(w, "pair", [S32] * 4)
    reducer = _choose_later(f) if chooses else _sum_and_max(f)
    b = w.builder
    first = b.identity(ReductionKind.MIN if chooses else ReductionKind.SUM, S32)
    hlo = b.create(
        Opcode.REDUCE,
        (x.hlo, y.hlo, first, b.identity(ReductionKind.MAX, S32)),
        DimensionsAttrs(dims),
        calls=(reducer,),
    )
    w.keep(Value(b.get_tuple_element(hlo, 0), math.inf))
    return w.keep(Value(b.get_tuple_element(hlo, 1), math.inf))


def _sum_and_max(f: Writer) -> HloComputation:
    a, m, c, n = (v.hlo for v in f.pool)
    b = f.builder
    b.computation.root = b.tuple([b.add(a, c), b.maximum(m, n)])
    return b.computation


def _choose_later(f: Writer) -> HloComputation:
    """Return a function that chooses by key, then by the larger companion.

    That order is total, so that any grouping agrees.
    """
    k, v, j, u = (x.hlo for x in f.pool)
    b = f.builder
    keeps = b.binary(
        Opcode.OR,
        b.compare(k, j, "LT"),
        b.logical_and(b.compare(k, j, "EQ"), b.compare(v, u, "GE")),
    )
    b.computation.root = b.tuple([b.select(keeps, k, j), b.select(keeps, v, u)])
    return b.computation


@operation(0.7, Opcode.REDUCE)
def reduce_of_unknown_kind(w: Writer) -> Value | None:
    """The larger of two plus the bits that they share: in no other order the same, so that none may be taken apart."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is S32 and 0 not in v.dims)
    if x is None:
        return None
    f = function(w, "odd", [S32, S32])
    a, c = (v.hlo for v in f.pool)
    b = f.builder
    b.computation.root = b.add(b.maximum(a, c), b.logical_and(a, c))
    at = w.integer(0, x.rank - 1)
    zero = w.builder.scalar(S32, 0)
    hlo = w.builder.create(
        Opcode.REDUCE, (x.hlo, zero), DimensionsAttrs((at,)), calls=(b.computation,)
    )
    return w.keep(Value(hlo, math.inf))


@operation(0.7, Opcode.RNG_BIT_GENERATOR)
def random_bits(w: Writer) -> Value | None:
    """Bits, and the state that comes after them."""
    threefry = w.chance(0.5)
    words = 2 if threefry else w.integer(2, 3)
    state = w.of(U64, (words,))
    dims = w.dims(w.integer(1, 3))
    shape = TupleShape((ArrayShape(U64, (words,)), ArrayShape(U32, dims)))
    attrs = RngBitGeneratorAttrs("rng_three_fry" if threefry else "rng_philox")
    hlo = w.builder.create(Opcode.RNG_BIT_GENERATOR, (state.hlo,), attrs, shape=shape)
    w.keep(Value(w.builder.get_tuple_element(hlo, 0), math.inf))
    return w.keep(Value(w.builder.get_tuple_element(hlo, 1), math.inf))


@operation(0.7, Opcode.BITCAST_CONVERT)
def bits_of(w: Writer) -> Value | None:
    """The bits of a stable value: as many integers, or four bytes for each."""
    x = w.pick(lambda v: v.dtype in (F32, S32, U32) and v.stable and v.rank < 4)
    if x is None:
        return None
    bits = 0.2 if w.wants(Opcode.BITCAST_CONVERT, WHOLE) else 0.5
    wide = U32 if x.dtype is not U32 else S32
    shape = ArrayShape(wide, x.dims) if w.chance(bits) else ArrayShape(U8, (*x.dims, 4))
    hlo = w.builder.create(Opcode.BITCAST_CONVERT, (x.hlo,), shape=shape)
    return w.keep(Value(hlo, math.inf))


@operation(0.5, Opcode.BITCAST)
def bitcast(w: Writer) -> Value | None:
    """The same elements in the same order of memory under other sizes, and mostly other layouts."""
    x = w.pick(lambda v: v.rank > 0 and 0 not in v.dims)
    if x is None or w.wants(Opcode.BITCAST, SPLIT):
        x = w.of(F32, (*w.dims(1), w.choose((4, 6, 8, 9, 15))))
    elif w.wants(Opcode.BITCAST, MERGE) and x.rank < 2:
        x = w.of(F32, (*x.dims, w.choose((2, 3, 5))))
    if 0 in x.dims:
        return None
    dims = list(x.dims)
    at = len(dims) - 1 if w.wants(Opcode.BITCAST, SPLIT) else w.integer(0, len(dims) - 1)
    if at + 1 < len(dims) and w.chance(0.5 if not w.wants(Opcode.BITCAST, MERGE) else 1.0):
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    else:
        part = next((f for f in range(2, dims[at]) if dims[at] % f == 0), 1)
        dims[at : at + 1] = [part, dims[at] // part]
    source, shape = x.hlo, ArrayShape(x.dtype, tuple(dims))
    if not w.aims_at(Opcode.BITCAST.value):
        source = w.builder.copy(x.hlo)
        source.shape = _with_any_layout(w, source.array_shape)
        shape = _with_any_layout(w, shape)
    hlo = w.builder.create(Opcode.BITCAST, (source,), shape=shape)
    return w.keep(w.result(hlo, x.bound, x))


def _with_any_layout(w: Writer, shape: ArrayShape) -> ArrayShape:
    return replace(shape, layout=Layout(tuple(w.shuffled(range(shape.rank)))))


@operation(0.5, Opcode.DOMAIN, Opcode.COPY)
def stands_still(w: Writer) -> Value | None:
    x = w.pick()
    if x is None:
        return None
    if w.opcode(Opcode.DOMAIN, Opcode.COPY) is Opcode.COPY:
        return w.keep(w.result(w.builder.copy(x.hlo), x.bound, x))
    text = '{kind="sharding", entry={replicated}, exit={replicated}}'
    hlo = w.builder.create(Opcode.DOMAIN, (x.hlo,), DomainAttrs(text))
    return w.keep(w.result(hlo, x.bound, x))


@operation(0.7, Opcode.CONSTANT)
def table_of_numbers(w: Writer) -> Value | None:
    """A constant whose elements differ, or not."""
    dims = w.dims(w.integer(1, 3))
    if w.chance(0.3):
        hlo = w.builder.constant(Literal.of(ArrayShape(F32, dims), np.full(dims, 2, np.float32)))
        return w.keep(Value(hlo, 2.0))
    return w.keep(Value(w.dense_constant(dims), 4.0))
