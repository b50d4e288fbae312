"""Loops that stack a part of an array in each trip, forward or back, beside ones that leave something of it."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("while-loop-overwritten-state")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    p.result.stage = Stage.PARTITIONED
    kind, trips, start = p.element_type(), p.integer(1, 4), p.integer(-2, 3)
    rows, columns = p.integer(1, 3), p.integer(1, 4)
    x = p.value(kind, (rows, columns))
    backward, along = p.chance(), p.choose((0, 1))
    dims = (trips * rows, columns) if along == 0 else (rows, trips * columns)
    longer = (dims[0] + (along == 0), dims[1] + (along == 1))
    filling = p.b.full(ArrayShape(kind, ()), 3)
    stacked, partial = (p.b.broadcast_scalar(filling, d) for d in (dims, longer))
    count = p.b.scalar(PrimitiveType.S32, start)
    state = p.b.tuple([count, stacked, partial, stacked, x])

    inside, (s,) = p.computation("more", state.shape)
    limit = inside.scalar(PrimitiveType.S32, start + trips)
    more = p.returns(inside.compare(inside.get_tuple_element(s, 0), limit, "LT"))

    inside, (s,) = p.computation("body", state.shape)
    i, whole, part, read, now = (inside.get_tuple_element(s, e) for e in range(5))
    trip = inside.subtract(i, inside.scalar(PrimitiveType.S32, start))
    if backward:
        trip = inside.subtract(inside.scalar(PrimitiveType.S32, trips - 1), trip)
    size = inside.scalar(PrimitiveType.S32, (rows, columns)[along])
    starts = [inside.scalar(PrimitiveType.S32, 0)] * 2
    starts[along] = inside.multiply(trip, size)
    updates = [inside.dynamic_update_slice(array, now, starts) for array in (whole, part)]
    seen = inside.dynamic_update_slice(read, _sum(inside, read, now, starts), starts)
    following = inside.add(i, inside.scalar(PrimitiveType.S32, 1))
    body = p.returns(inside.tuple([following, *updates, seen, inside.add(now, now)]))

    loop = p.b.while_loop(state, more, body)
    return p.module(*(p.b.get_tuple_element(loop, e) for e in (1, 2, 3)))


def _sum(
    b: Builder, array: HloInstruction, x: HloInstruction, starts: list[HloInstruction]
) -> HloInstruction:
    """x and what the array holds where x is to go."""
    return b.add(b.dynamic_slice(array, starts, x.dims), x)
