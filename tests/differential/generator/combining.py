"""Operations that combine elements: reduce, argmax, dot, convolution, reduce-window.

Floating sums are taken over whole numbers as long as they stay exact; otherwise the result is marked unstable, because
a partitioned program may add in another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spmd.device import ReductionKind
from spmd.hlo import HloComputation, Opcode
from spmd.ops.attrs import (
    DimensionsAttrs,
    DotAttrs,
)
from spmd.shape import ArrayShape, PrimitiveType
from tests.differential.generator.table import operation
from tests.differential.generator.writer import (
    F32,
    MAX_ELEMENTS,
    PRED,
    S32,
    WHOLE_LIMIT,
    Value,
    Writer,
)

#: Sums in these types round too coarsely to be worth comparing: only exact ones are written.
_COARSE = (PrimitiveType.BF16, PrimitiveType.F16)


def summed(w: Writer, hlo_of_sum: Value, terms: Sequence[Value], bound: float) -> Value | None:
    """The value of a sum whose terms' absolute values add up to at most ``bound``."""
    exact = all(t.whole for t in terms) and (
        not hlo_of_sum.is_float or bound <= WHOLE_LIMIT[hlo_of_sum.dtype]
    )
    stable = exact and all(t.stable for t in terms)
    return w.keep(Value(hlo_of_sum.hlo, bound, exact, stable))


def may_sum(value: Value, count: float, weight: float = 1.0) -> bool:
    """Return whether ``count`` terms of at most ``value.bound * weight`` give a comparable sum."""
    if value.dtype not in _COARSE:
        return True
    return value.whole and value.bound * weight * count <= WHOLE_LIMIT[value.dtype]


@operation(6, Opcode.REDUCE)
def reduce(w: Writer) -> Value | None:
    """sum, max, min, product, and, or over some dimensions, from the neutral element or another one."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    dims = w.some(range(x.rank), 1)
    count = math.prod(x.dims[d] for d in dims)
    kind = _reduction(w, x, count)
    b = w.builder
    if kind is ReductionKind.PRODUCT and x.is_float:
        two = b.scalar(x.dtype, 2)
        x = Value(b.clamp(b.negate(two), x.hlo, two), 2.0, x.whole, x.stable)
    init = w.of(x.dtype, ()) if w.chance(0.3) else None
    if init is not None and init.is_float and not init.whole:
        init = None
    hlo = b.reduce(x.hlo, dims, kind, init.hlo if init is not None else None)
    start = init.bound if init is not None else 0.0
    terms = [x] if init is None else [x, init]
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    if kind is ReductionKind.SUM:
        return summed(w, Value(hlo, 0.0), terms, x.bound * count + start)
    if kind is ReductionKind.PRODUCT:
        return w.keep(w.result(hlo, 2.0**count * max(start, 1.0), *terms))
    # An empty maximum is -inf: no use to later arithmetic.
    if count == 0:
        return None
    return w.keep(w.result(hlo, max(x.bound, start), *terms))


def _reduction(w: Writer, x: Value, count: int) -> ReductionKind:
    if x.dtype is PRED:
        return w.choose((ReductionKind.AND, ReductionKind.OR))
    order = [ReductionKind.MAX, ReductionKind.MIN]
    if not x.is_float:
        order += [ReductionKind.SUM, ReductionKind.AND, ReductionKind.OR, ReductionKind.XOR]
    elif may_sum(x, count + 1):
        order += [ReductionKind.SUM] * 4
        if x.whole and x.stable and count <= 5:
            order.append(ReductionKind.PRODUCT)
    return w.choose(order)


@operation(1, Opcode.REDUCE)
def argmax(w: Writer) -> Value | None:
    """The variadic reduction that jnp.argmax lowers to; the position of the first largest element."""
    x = w.pick(lambda v: v.rank > 0 and v.stable and v.dtype in (F32, S32))
    if x is None:
        return None
    dim = w.integer(0, x.rank - 1)
    if x.dims[dim] == 0:
        return None
    b = w.builder
    positions = b.iota(S32, x.dims, dim)
    low = b.identity(ReductionKind.MAX, x.dtype)
    hlo = b.create(
        Opcode.REDUCE,
        (x.hlo, positions, low, b.scalar(S32, 0)),
        DimensionsAttrs((dim,)),
        calls=(_argmax_reducer(w, x.dtype),),
    )
    w.keep(Value(b.get_tuple_element(hlo, 0), x.bound, x.whole, True))
    return w.keep(Value(b.get_tuple_element(hlo, 1), float(x.dims[dim])))


def _argmax_reducer(w: Writer, dtype: PrimitiveType) -> HloComputation:
    computation = w.module.new_computation("argmax")
    w.module.computations.insert(0, w.module.computations.pop())
    b = w.builder.within(computation)
    x, i, y, j = (
        b.parameter(n, ArrayShape(t, ()), name)
        for n, (t, name) in enumerate(((dtype, "x"), (S32, "i"), (dtype, "y"), (S32, "j")))
    )
    greater = b.compare(x, y, "GT")
    first = b.logical_and(b.compare(x, y, "EQ"), b.compare(i, j, "LT"))
    keeps = b.binary(Opcode.OR, greater, first)
    computation.root = b.tuple([b.select(keeps, x, y), b.select(keeps, i, j)])
    return computation


@operation(6, Opcode.DOT)
def dot(w: Writer) -> Value | None:
    """Write a product with up to two batch and two contracting dimensions at random places."""
    x = w.pick(
        lambda v: v.rank > 0 and v.dtype in (F32, S32, PrimitiveType.BF16, PrimitiveType.F64)
    )
    if x is None:
        return None
    order = w.shuffled(range(x.rank))
    batch = order[: w.integer(0, min(2 if w.chance(0.3) else 1, x.rank - 1))]
    contracting = order[len(batch) : len(batch) + w.integer(0 if w.chance(0.1) else 1, 2)]
    free = w.dims(w.integer(0, 1))
    sizes = [x.dims[d] for d in (*batch, *contracting)] + list(free)
    place = w.shuffled(range(len(sizes)))
    dims = [0] * len(sizes)
    for size, at in zip(sizes, place, strict=True):
        dims[at] = size
    kept = [n for d, n in enumerate(x.dims) if d not in contracting]
    if math.prod(dims) > MAX_ELEMENTS or math.prod(kept) * math.prod(free) > MAX_ELEMENTS:
        return None
    y = w.of(x.dtype, tuple(dims))
    count = math.prod(x.dims[d] for d in contracting)
    if not (may_sum(x, count, y.bound) and (not x.is_float or y.whole or x.dtype is F32)):
        return None
    attrs = DotAttrs(
        tuple(contracting),
        tuple(place[len(batch) : len(batch) + len(contracting)]),
        tuple(batch),
        tuple(place[: len(batch)]),
    )
    hlo = w.builder.dot(x.hlo, y.hlo, attrs)
    bound = x.bound * y.bound * count if x.is_float else math.inf
    return summed(w, Value(hlo, 0.0), [x, y], bound)
