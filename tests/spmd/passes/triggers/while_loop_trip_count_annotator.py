"""Loops that count between constants, up or down, alone or one in the other."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("while-loop-trip-count-annotator")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind = p.choose((PrimitiveType.S32, PrimitiveType.S8, PrimitiveType.U32, PrimitiveType.S64))
    x = p.value(p.element_type(), p.dims())
    results = [_loop(p, kind, x) for _ in range(p.integer(1, 2))]
    return p.module(*results)


def _loop(p: Program, kind: PrimitiveType, x: HloInstruction) -> HloInstruction:
    """The last value of x, and how far the counter came."""
    down = kind.is_signed_integer and p.chance()
    step = p.integer(1, 3)
    start, bound = p.integer(0, 3), p.integer(0, 9)
    if down:
        start, bound, step = bound, start, -step
    direction = p.choose(("GT", "GE") if down else ("LT", "LE"))
    state = TupleShape((x.shape, ArrayShape(kind, ())))
    inside, (s,) = p.computation("more", state)
    count, limit = inside.get_tuple_element(s, 1), inside.scalar(kind, bound)
    if p.chance():
        mirrored = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
        more = p.returns(inside.compare(limit, count, mirrored[direction]))
    else:
        more = p.returns(inside.compare(count, limit, direction))
    inside, (s,) = p.computation("body", state)
    value, count = inside.get_tuple_element(s, 0), inside.get_tuple_element(s, 1)
    if down and p.chance():
        count = inside.subtract(count, inside.scalar(kind, -step))
    else:
        count = inside.add(count, inside.scalar(kind, step))
    body = p.returns(inside.tuple([inside.add(value, value), count]))
    return p.b.while_loop(p.b.tuple([x, p.b.scalar(kind, start)]), more, body)
