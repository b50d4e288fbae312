"""Modules that set off the identities of operations that move, repeat, cut out and combine elements."""

from __future__ import annotations

import math

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Stage
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.algebraic_forms import form
from tests.spmd.passes.triggers.programs import ANY_TYPE, FLOATS, INTEGERS, NUMBERS, Program

S32 = PrimitiveType.S32


def _some(
    p: Program, low: int = 0, high: int = 4, *, among: tuple[PrimitiveType, ...] = ANY_TYPE
) -> HloInstruction:
    return p.value(p.element_type(among), p.dims(low, high))


def _some_full(p: Program, low: int = 0, high: int = 3) -> HloInstruction:
    """Return an array with at least one element."""
    return p.value(p.element_type(), p.dims(low, high, empty=False))


def _repeated(p: Program, x: HloInstruction, *extra: int) -> HloInstruction:
    """``x`` broadcast along new dimensions of sizes ``extra``, put in anywhere."""
    rank = len(x.dims) + len(extra)
    places = p.some(range(rank))
    while len(places) != len(x.dims):
        places = p.some(range(rank))
    dims, rest = [0] * rank, list(extra)
    for d in range(rank):
        dims[d] = x.dims[places.index(d)] if d in places else rest.pop()
    return p.b.broadcast(x, places, dims)


def _units_put_in(p: Program, dims: tuple[int, ...]) -> list[int]:
    result = list(dims)
    for _ in range(p.integer(1, 2)):
        result.insert(p.integer(0, len(result)), 1)
    return result


# ---- repeating
@form
def broadcast_to_itself(p: Program) -> HloInstruction:
    x = p.value(p.element_type(), p.dims(1, 3, empty=False))
    return p.b.broadcast(x, range(len(x.dims)), x.dims) if p.chance() else _repeated(p, x, 1)


@form
def broadcast_of_broadcast(p: Program) -> HloInstruction:
    return _repeated(p, _repeated(p, _some(p, 0, 2), p.integer(1, 3)), p.integer(1, 3))


@form
def broadcast_of_unit_reshape(p: Program) -> HloInstruction:
    x = p.value(p.element_type(), tuple(p.integer(2, 5) for _ in range(p.integer(0, 2))))
    return _repeated(p, p.b.reshape(x, _units_put_in(p, x.dims)), p.integer(2, 3))


@form
def sink_broadcasts(p: Program) -> HloInstruction:
    x = p.value(p.element_type(NUMBERS), p.dims(0, 2, empty=False))
    wide = _repeated(p, x, p.integer(2, 4))
    if p.chance():
        return p.b.negate(wide)
    scalar = p.value(x.array_shape.element_type, ())
    return p.b.multiply(*p.shuffled((wide, p.b.broadcast_scalar(scalar, wide.dims))))


@form
def iota_of_one(p: Program) -> HloInstruction:
    dims = list(p.dims(1))
    axis = p.integer(0, len(dims) - 1)
    dims[axis] = 1
    return p.b.iota(p.element_type(), dims, axis)


# ---- reshaping
@form
def reshape_to_itself(p: Program) -> HloInstruction:
    x = _some(p)
    return p.b.reshape(x, x.dims)


@form
def reshape_of_reshape(p: Program) -> HloInstruction:
    x = _some(p)
    return p.b.reshape(p.b.reshape(x, [math.prod(x.dims)]), _units_put_in(p, x.dims))


@form
def reshape_of_broadcast(p: Program) -> HloInstruction:
    if p.chance():
        dims = p.dims(1)
        return p.b.reshape(p.b.broadcast_scalar(_some(p, 0, 0), dims), [math.prod(dims), 1])
    x = p.value(p.element_type(), [p.integer(2, 5) for _ in range(p.integer(1, 2))])
    wide = _repeated(p, x, p.integer(2, 4))
    return p.b.reshape(wide, _units_put_in(p, wide.dims))


# ---- transposing
@form
def transpose_to_itself(p: Program) -> HloInstruction:
    x = _some(p, 1)
    if p.chance():
        return p.b.transpose(x, range(len(x.dims)))
    unit = p.value(x.array_shape.element_type, (1, *x.dims))
    return p.b.transpose(unit, (*range(1, len(unit.dims)), 0))


@form
def transpose_of_transpose(p: Program) -> HloInstruction:
    x = _some(p, 2)
    order = range(len(x.dims))
    return p.b.transpose(p.b.transpose(x, p.shuffled(order)), p.shuffled(order))


@form
def transpose_of_dot(p: Program) -> HloInstruction:
    m, k, n = (p.integer(1, 5) for _ in range(3))
    kind = p.element_type((*FLOATS, *INTEGERS))
    attrs = DotAttrs(lhs_contracting=(1,), rhs_contracting=(0,))
    return p.b.transpose(p.b.dot(p.value(kind, (m, k)), p.value(kind, (k, n)), attrs), (1, 0))


# ---- products
@form
def fold_transposes(p: Program) -> HloInstruction:
    batch, m, k, n = p.integer(0, 3), *(p.integer(1, 5) for _ in range(3))
    kind = p.element_type((*FLOATS, *INTEGERS))
    left = p.b.transpose(p.value(kind, (k, batch, m)), (1, 2, 0))
    right = p.value(kind, (batch, k, n))
    return p.b.dot(left, right, DotAttrs((2,), (1,), (0,), (0,)))


@form
def dot_over_nothing(p: Program) -> HloInstruction:
    m, n = p.integer(1, 5), p.integer(1, 5)
    kind = p.element_type((*FLOATS, *INTEGERS))
    return p.b.dot(p.value(kind, (m, 0)), p.value(kind, (0, n)), DotAttrs((1,), (0,)))


# ---- cutting out
def _slice(p: Program, x: HloInstruction) -> HloInstruction:
    strides = [p.choose((1, 1, 2)) for _ in x.dims]
    least = 0 if p.chance(0.2) else 1  # mostly something is left
    starts = [p.integer(0, max(0, n - least)) for n in x.dims]
    limits = [p.integer(min(s + least, n), n) for s, n in zip(starts, x.dims, strict=True)]
    return p.b.slice(x, starts, limits, strides)


@form
def slice_of_everything(p: Program) -> HloInstruction:
    x = _some(p, 1)
    if p.chance():
        return p.b.slice(x, [0] * len(x.dims), x.dims)
    return p.b.dynamic_slice(x, [p.value(S32, ()) for _ in x.dims], x.dims)


@form
def slice_of_slice(p: Program) -> HloInstruction:
    return _slice(p, _slice(p, _some(p, 1)))


@form
def slice_of_broadcast(p: Program) -> HloInstruction:
    x = _some(p, 1, 2)
    wide = p.b.broadcast(x, range(1, 1 + len(x.dims)), (p.integer(3, 6), *x.dims))
    start, rest = p.integer(0, 2), [0] * len(x.dims)
    if p.chance():
        return p.b.slice(wide, [start, *rest], [start + 1, *x.dims])
    return p.b.dynamic_slice(wide, [p.value(S32, ()) for _ in wide.dims], (2, *x.dims))


@form
def slice_of_iota(p: Program) -> HloInstruction:
    count = p.b.iota(p.element_type(), (p.integer(2, 6), p.integer(2, 6)), p.integer(0, 1))
    return p.b.slice(count, (0, 0), (p.integer(1, count.dims[0]), p.integer(1, count.dims[1])))


@form
def slice_of_concatenate(p: Program) -> HloInstruction:
    first = _some_full(p, 1)
    second = p.like(first)
    axis = p.integer(0, len(first.dims) - 1)
    whole, size = p.b.concatenate((first, second), axis), first.dims[axis]
    starts, limits = [0] * len(first.dims), list(first.dims)
    if p.chance():
        starts[axis], limits[axis] = size, 2 * size
    return p.b.slice(whole, starts, limits)


@form
def slice_of_pad(p: Program) -> HloInstruction:
    x = _some_full(p, 1)
    low = [p.integer(0, 2) for _ in x.dims]
    high = [p.integer(0, 2) for _ in x.dims]
    low[0] += 1
    padded = p.b.pad(x, p.value(x.array_shape.element_type, ()), low, high)
    return p.b.slice(padded, low, [s + n for s, n in zip(low, x.dims, strict=True)])


@form
def dynamic_slice_at_constant(p: Program) -> HloInstruction:
    x = _some_full(p, 1)
    starts = [p.b.scalar(S32, p.integer(-2, n + 2)) for n in x.dims]
    return p.b.dynamic_slice(x, starts, [p.integer(0, n) for n in x.dims])


@form
def update_of_everything(p: Program) -> HloInstruction:
    x = _some(p, 1)
    return p.b.dynamic_update_slice(x, p.like(x), [p.value(S32, ()) for _ in x.dims])


@form
def reverse_to_itself(p: Program) -> HloInstruction:
    x = _some(p, 1)
    dims = p.some(range(len(x.dims)), at_least=1)
    if p.chance():
        return p.b.reverse(p.b.reverse(x, dims), dims)
    wide = p.b.broadcast(x, range(1, 1 + len(x.dims)), (p.choose((1, 3)), *x.dims))
    return p.b.reverse(wide, (0, *(d + 1 for d in dims)))


# ---- padding
@form
def pad_by_nothing(p: Program) -> HloInstruction:
    x = _some_full(p, 1)
    low = [-p.integer(0, n) if p.chance() else 0 for n in x.dims]
    high = [-p.integer(0, n + s) for n, s in zip(x.dims, low, strict=True)]
    return p.b.pad(x, p.value(x.array_shape.element_type, ()), low, high)


@form
def pad_of_empty(p: Program) -> HloInstruction:
    x = p.value(p.element_type(), (0, *p.dims(0, 2)))
    return p.b.pad(
        x,
        p.value(x.array_shape.element_type, ()),
        [p.integer(0, 3)] * len(x.dims),
        [1] * len(x.dims),
    )


@form
def add_of_disjoint_parts(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x, y = _some_full(p, 1), None
    kind, axis, rest = x.array_shape.element_type, p.integer(0, len(x.dims) - 1), [0] * len(x.dims)
    y = p.value(kind, x.dims)
    gap, zero, size = p.integer(0, 2), p.b.scalar(kind, 0), x.dims[axis]
    at_end, at_start = list(rest), list(rest)
    at_end[axis] = at_start[axis] = size + gap
    return p.b.add(*p.shuffled((p.b.pad(x, zero, rest, at_end), p.b.pad(y, zero, at_start, rest))))


# ---- joining
@form
def without_empty_parts(p: Program) -> HloInstruction:
    x = _some_full(p, 1)
    empty = p.value(x.array_shape.element_type, (0, *x.dims[1:]))
    parts = [x, empty, p.value(x.array_shape.element_type, x.dims)]
    return p.b.concatenate([x] if p.chance(0.2) else p.shuffled(parts), 0)


@form
def flattened(p: Program) -> HloInstruction:
    x = _some_full(p, 1)
    axis = p.integer(0, len(x.dims) - 1)
    inner = p.b.concatenate((x, p.like(x)), axis)
    return p.b.concatenate(p.shuffled((inner, p.like(x))), axis)


@form
def of_neighbouring_slices(p: Program) -> HloInstruction:
    x = p.value(p.element_type(), (p.integer(3, 8), *p.dims(0, 2, empty=False)))
    first = p.integer(1, x.dims[0] - 2)
    second = p.integer(first + 1, x.dims[0])
    parts = [
        p.b.slice(x, (s, *[0] * (len(x.dims) - 1)), (e, *x.dims[1:]))
        for s, e in ((0, first), (first, second))
    ]
    return p.b.concatenate([*parts, p.like(x)] if p.chance() else parts, 0)


# ---- reductions
def _kind(p: Program) -> ReductionKind:
    return p.choose((ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN))


REAL = (*FLOATS, *INTEGERS)


@form
def reduce_of_units(p: Program) -> HloInstruction:
    x = _some(p, 0, 3, among=REAL)
    dims = _units_put_in(p, x.dims)
    units = [d for d, n in enumerate(dims) if n == 1]
    unit = p.value(x.array_shape.element_type, dims)
    return p.b.reduce(unit, p.some(units, at_least=1), _kind(p))


@form
def reduce_of_transpose(p: Program) -> HloInstruction:
    x = _some(p, 1, 4, among=REAL)
    moved = p.b.transpose(x, p.shuffled(range(len(x.dims))))
    kept = p.some((0,))
    return p.b.reduce(moved, [d for d in range(len(x.dims)) if d not in kept], _kind(p))


@form
def reduce_of_broadcast(p: Program) -> HloInstruction:
    x = p.value(
        p.element_type((PrimitiveType.F32, PrimitiveType.F64, S32)), p.dims(0, 2, empty=False)
    )
    wide = p.b.broadcast(x, range(1, 1 + len(x.dims)), (p.choose((2, 4, 8)), *x.dims))
    return p.b.reduce(wide, (0, *(d + 1 for d in p.some(range(len(x.dims))))), _kind(p))


@form
def reduce_of_reduce(p: Program) -> HloInstruction:
    x, kind = _some(p, 2, 4, among=REAL), _kind(p)
    first = p.b.reduce(x, (p.integer(0, len(x.dims) - 1),), kind)
    return p.b.reduce(first, p.some(range(len(first.dims)), at_least=1), kind)


@form
def reduce_of_nothing(p: Program) -> HloInstruction:
    kind = p.element_type(REAL)
    x, start = p.value(kind, (0, p.integer(1, 4))), p.value(kind, ())
    return p.b.reduce(x, (0,), _kind(p), start)
