"""Arrays that their readers would have to copy: heads of products, parts from others, joins, reduced dimensions, loop state."""

from __future__ import annotations

import runtime.layout.layout_assignment  # noqa: F401 - registers the pass
from spmd.builder import Builder
from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import FLOATS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("layout-assignment")
def modules(rng: Rng) -> HloModule:
    devices = 1 + int(rng.integers(2))
    p = Program(rng, devices)
    p.result.stage = Stage.PARTITIONED
    kind = p.element_type(FLOATS)
    makers = [heads, joined, reduced, carried] + [exchanged, gathered] * (devices > 1)
    found = [make(p, kind) for make in p.some(makers, 1)]
    return p.module(*found)


def heads(p: Program, kind: PrimitiveType) -> HloInstruction:
    """A product's result whose batch dimensions are to lie among its rows, with operations in between."""
    batch, count, rows, depth, size = (p.integer(2, 4) for _ in range(5))
    scores = p.value(kind, (batch, count, rows, depth))
    values = p.value(kind, (batch, count, depth, size))
    x = p.b.dot(scores, values, DotAttrs((3,), (2,), (0, 1), (0, 1)))
    for _ in range(p.integer(0, 3)):
        x = p.b.binary(Opcode.ADD, x, p.b.negate(x)) if p.chance(0.3) else p.b.negate(x)
    if p.chance():
        weights = p.value(kind, (count, size, p.integer(1, 4)))
        return p.b.dot(x, weights, DotAttrs((1, 3), (0, 1)))
    return p.b.reshape(p.b.transpose(x, (0, 2, 1, 3)), (batch, rows, count * size))


def joined(p: Program, kind: PrimitiveType) -> HloInstruction:
    """A concatenation along a dimension apart from the one that it is contracted with."""
    rows, depth = p.integer(2, 5), p.integer(2, 5)
    parts = [_written(p, kind, (p.integer(1, 3), rows, depth)) for _ in range(2)]
    return _contracted(p, kind, p.b.concatenate(parts, 0))


def gathered(p: Program, kind: PrimitiveType) -> HloInstruction:
    """An all-gather of that kind."""
    part = _written(p, kind, (p.integer(1, 3), p.integer(2, 5), p.integer(2, 5)))
    return _contracted(p, kind, p.b.all_gather(part, _everyone(p), 0))


def exchanged(p: Program, kind: PrimitiveType) -> HloInstruction:
    """An all-to-all whose members' dimension is to lie elsewhere; perhaps with several blocks for each member."""
    first, second = p.integer(2, 4), p.integer(1, 4)
    if p.chance():
        x = p.b.all_to_all(p.value(kind, (first, 2, second)), _everyone(p), 1)
        return p.b.reshape(p.b.transpose(x, (1, 0, 2)), (2 * first, second))
    x = p.b.all_to_all(p.value(kind, (2 * first, second)), _everyone(p), 0)
    apart = p.b.reshape(x, (2, first, second))
    return p.b.reshape(p.b.transpose(apart, (1, 0, 2)), (first, 2 * second))


def reduced(p: Program, kind: PrimitiveType) -> HloInstruction:
    """A reduction that reads its operand as this lies, and may write what it keeps in that order."""
    rows, columns, depth = (p.integer(2, 4) for _ in range(3))
    x = p.b.transpose(_written(p, kind, (columns, rows, depth)), (1, 0, 2))
    largest = p.b.reduce(x, (1,), ReductionKind.MAX, p.b.identity(ReductionKind.MAX, kind))
    return p.b.negate(largest)


def carried(p: Program, kind: PrimitiveType) -> HloInstruction:
    """Loop state that is read in another order behind the loop than it is built up inside."""
    trips, rows, columns = (p.integer(2, 4) for _ in range(3))
    first = p.b.scalar(PrimitiveType.S32, 0)

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        step, stack, row = elements
        zero, one = b.scalar(PrimitiveType.S32, 0), b.scalar(PrimitiveType.S32, 1)
        part = b.reshape(row, (1, rows, columns))
        stacked = b.dynamic_update_slice(stack, part, [step, zero, zero])
        return [b.add(step, one), stacked, b.negate(row)]

    stack = p.b.full(ArrayShape(kind, (trips, rows, columns)), 0)
    row = p.value(kind, (rows, columns))
    loop = counted_loop(p, trips, [first, stack, row], body)
    (built,) = results(p, loop, 1)
    return p.b.negate(p.b.transpose(built, (1, 0, 2)))


def _written(p: Program, kind: PrimitiveType, dims: tuple[int, ...]) -> HloInstruction:
    """Return a value that is no parameter, whose layout would be given."""
    return p.b.negate(p.value(kind, dims))


def _contracted(p: Program, kind: PrimitiveType, x: HloInstruction) -> HloInstruction:
    count, _, depth = x.dims
    weights = p.value(kind, (count, depth, p.integer(1, 4)))
    return p.b.dot(x, weights, DotAttrs((0, 2), (0, 1)))


def _everyone(p: Program) -> ReplicaGroups:
    return ReplicaGroups((tuple(range(p.result.num_partitions)),))
