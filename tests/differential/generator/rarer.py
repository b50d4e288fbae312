"""Operations that are met less often: map, shifts, reduce-precision, select-and-scatter, topk, cumulative sums, ..."""

from __future__ import annotations

import math

from spmd.device import ReductionKind
from spmd.hlo import HloComputation, Opcode
from spmd.ops.attrs import (
    DimensionsAttrs,
    ReducePrecisionAttrs,
    ScatterAttrs,
    TopKAttrs,
    WindowAttrs,
)
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, S32, U32, Value, Writer


def _function(w: Writer, name: str, types: list[PrimitiveType]) -> Writer:
    """A new computation of scalars, standing before its caller; its parameters are the pool."""
    computation = w.module.new_computation(name)
    w.module.computations.insert(0, w.module.computations.pop())
    b = w.builder.within(computation)
    pool = [Value(b.parameter(n, ArrayShape(t, ())), 1.0) for n, t in enumerate(types)]
    return Writer(w.rng, w.module, b, w.mesh, w.style, pool=pool)


@operation(0.5)
def map_(w: Writer) -> Value | None:
    """x * y + x, element by element."""
    x = w.pick(lambda v: v.dtype in (F32, S32) and v.rank > 0)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    f = _function(w, "multiply_add", [x.dtype, x.dtype])
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


@operation(0.5)
def shift_bits(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.dtype in (S32, U32))
    if x is None:
        return None
    b = w.builder
    by = b.broadcast_scalar(b.scalar(x.dtype, 7), x.dims)
    by = b.logical_and(w.of(x.dtype, x.dims).hlo, by)
    opcode = w.choose(
        (Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_LOGICAL, Opcode.SHIFT_RIGHT_ARITHMETIC)
    )
    return w.keep(Value(b.binary(opcode, x.hlo, by), math.inf))


@operation(0.5)
def reduce_precision(w: Writer) -> Value | None:
    """Rounding decides, so a stable value is needed for a stable result."""
    x = w.pick(lambda v: v.dtype is F32 and v.stable)
    if x is None:
        return None
    hlo = w.builder.create(Opcode.REDUCE_PRECISION, (x.hlo,), ReducePrecisionAttrs(8, 7))
    return w.keep(Value(hlo, 2 * x.bound, x.whole and x.bound <= 64, True))


@operation(1)
def select_and_scatter(w: Writer) -> Value | None:
    """The gradient of max pooling: each window's first largest element takes the source's value."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is F32 and v.stable and 0 not in v.dims)
    if x is None:
        return None
    window = Window(
        tuple(
            WindowDimension()
            if w.chance(0.5)
            else WindowDimension(w.integer(1, min(3, n)), w.integer(1, 2), w.integer(0, 1))
            for n in x.dims
        )
    )
    sizes = tuple(d.output_size(n) for d, n in zip(window.dims, x.dims, strict=True))
    count = math.prod(d.size for d in window.dims)
    source = w.of(F32, sizes)
    if 0 in sizes or not may_sum(source, count) or not source.whole:
        return None
    f = _function(w, "greater_equal", [F32, F32])
    a, c = (v.hlo for v in f.pool)
    f.builder.computation.root = f.builder.compare(a, c, "GE")
    b = w.builder
    hlo = b.create(
        Opcode.SELECT_AND_SCATTER,
        (x.hlo, source.hlo, b.scalar(F32, 0)),
        WindowAttrs(window),
        calls=(f.builder.computation, b.scope.reducer(ReductionKind.SUM, F32)),
    )
    return summed(w, Value(hlo, 0.0), [source], source.bound * count)


@operation(1)
def topk(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and v.stable and v.dims[-1] > 0)
    if x is None:
        return None
    attrs = TopKAttrs(w.integer(1, x.dims[-1]), w.chance(0.8))
    hlo = w.builder.create(Opcode.TOPK, (x.hlo,), attrs)
    w.keep(w.result(w.builder.get_tuple_element(hlo, 0), x.bound, x))
    return w.keep(Value(w.builder.get_tuple_element(hlo, 1), float(x.dims[-1])))


@operation(1)
def cumulative(w: Writer) -> Value | None:
    """A running sum or maximum, as jnp.cumsum lowers: a window as long as the dimension."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    at = w.integer(0, x.rank - 1)
    size = x.dims[at]
    reverse = w.chance(0.3)
    run = WindowDimension(
        size,
        padding_low=0 if reverse else size - 1,
        padding_high=size - 1 if reverse else 0,
    )
    window = Window(tuple(run if d == at else WindowDimension() for d in range(x.rank)))
    kind = w.choose((ReductionKind.SUM, ReductionKind.MAX))
    b = w.builder
    hlo = b.create(
        Opcode.REDUCE_WINDOW,
        (x.hlo, b.identity(kind, x.dtype)),
        WindowAttrs(window),
        calls=(b.scope.reducer(kind, x.dtype),),
    )
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    if kind is ReductionKind.SUM:
        return summed(w, Value(hlo, 0.0), [x], x.bound * size)
    return w.keep(w.result(hlo, x.bound, x))


@operation(1)
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
    f = _function(w, "second", [x.dtype, x.dtype])
    f.builder.computation.root = f.pool[1].hlo
    attrs = ScatterAttrs(tuple(range(1, x.rank)), (at,), (at,), 1)
    hlo = b.create(Opcode.SCATTER, (x.hlo, ids, updates.hlo), attrs, calls=(f.builder.computation,))
    return w.keep(w.result(hlo, max(x.bound, updates.bound), x, updates))


@operation(1)
def reduce_pair(w: Writer) -> Value | None:
    """Two reductions in one: a sum and a maximum, or the element with the smallest key."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is S32 and 0 not in v.dims)
    if x is None:
        return None
    y = w.of(S32, x.dims)
    dims = tuple(w.some(range(x.rank), 1))
    chooses = w.chance(0.5)
    f = _function(w, "pair", [S32] * 4)
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
    """By key, then by the larger companion: a total order, so that any grouping agrees."""
    k, v, j, u = (x.hlo for x in f.pool)
    b = f.builder
    keeps = b.logical_or(
        b.compare(k, j, "LT"), b.logical_and(b.compare(k, j, "EQ"), b.compare(v, u, "GE"))
    )
    b.computation.root = b.tuple([b.select(keeps, k, j), b.select(keeps, v, u)])
    return b.computation
