"""Loops that add up all-reduces, of one array or two, or write each into another row of an array."""

from __future__ import annotations

from collections.abc import Callable

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.reduction import identity_value
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    reduction,
    rewritten,
    several_devices,
)
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.reassociated import OPERATIONS
from tests.spmd.passes.triggers.registry import Rng, trigger

_S32 = PrimitiveType.S32
#: An all-reduce of an array, of the same devices and kind each time.
Reduce = Callable[[Builder, HloInstruction], HloInstruction]


@trigger("while-loop-all-reduce-code-motion")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode = p.element_type(), reducing_mode(p)
    count, combined = ids_of(p, mode), reduction(p, kind)
    groups = equal_groups(p, count)

    def attrs() -> CollectiveAttrs:
        return meeting(p, mode, rewritten(p, groups, count))

    def reduce(b: Builder, x: HloInstruction) -> HloInstruction:
        reducer = p.b.scope.reducer(combined, kind)
        return b.create(Opcode.ALL_REDUCE, (x,), attrs(), calls=(reducer,))

    return p.module(
        *(_added if p.chance(0.6) else _stacked)(
            p, ArrayShape(kind, p.dims(1, 3)), combined, reduce
        )
    )


def _added(
    p: Program, shape: ArrayShape, kind: ReductionKind, reduce: Reduce
) -> list[HloInstruction]:
    terms = p.integer(1, 2)
    turned = p.chance(0.4)

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        total, x = elements
        for _ in range(terms):
            term = reduce(b, x)
            if turned:
                term = b.reverse(term, [0])
            operation = p.choose(OPERATIONS[kind])
            pair = [total, term] if operation is Opcode.SUBTRACT else p.shuffled([total, term])
            total = b.binary(operation, *pair)
        return [total, b.negate(x) if shape.element_type is not PrimitiveType.PRED else x]

    before = p.value(shape.element_type, shape.dims)
    x = p.value(shape.element_type, shape.dims)
    loop = counted_loop(p, p.integer(0, 3), [before, x], body)
    return [p.after(value) for value in results(p, loop, 0, *p.some((1,)))]


def _stacked(
    p: Program, shape: ArrayShape, kind: ReductionKind, reduce: Reduce
) -> list[HloInstruction]:
    """Write a loop that stacks reductions.

    The stack is filled with what the reduction keeps, or the loop overwrites all of it.
    """
    trips = p.integer(1, 4)
    covered = p.chance()
    rows = (trips + (0 if covered else p.integer(0, 2)), *shape.dims)
    neutral = identity_value(kind, shape.element_type)
    filling = 1 if covered else neutral

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        stack, x, i = elements
        row = b.reshape(reduce(b, x), (1, *shape.dims))
        zero = b.scalar(_S32, 0)
        stack = b.dynamic_update_slice(stack, row, [i, *(zero for _ in shape.dims)])
        changed = b.negate(x) if shape.element_type is not PrimitiveType.PRED else x
        return [stack, changed, b.add(i, b.scalar(_S32, 1))]

    stack = p.b.full(ArrayShape(shape.element_type, rows), filling)
    x = p.value(shape.element_type, shape.dims)
    loop = counted_loop(p, trips, [stack, x, p.b.scalar(_S32, 0)], body)
    return [p.after(value) for value in results(p, loop, 0, *p.some((1,)))]
