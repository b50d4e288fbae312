"""Products of what is gathered, along batch, summed or free dimensions of either operand, and scattered products."""

from __future__ import annotations

from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_TYPES = (PrimitiveType.F32, PrimitiveType.BF16, PrimitiveType.S32)
_DEVICES = 4
#: batch, rows, summed; batch, summed, columns
_ATTRS = DotAttrs((2,), (1,), (0,), (0,))


@trigger("windowed-einsum", options="chunks=8")
def modules(rng: Rng) -> HloModule:
    p = Program(rng, _DEVICES)
    groups = ReplicaGroups(p.choose((((0, 1, 2, 3),), ((0, 1), (3, 2)), ((0, 2), (1, 3)))))
    members, kind = groups.group_size(_DEVICES), p.element_type(_TYPES)
    batch, rows, summed, columns = (p.integer(1, 3) for _ in range(4))
    make = _gathered if p.chance() else _scattered
    return p.module(
        make(p, groups, members, kind, [[batch, rows, summed], [batch, summed, columns]])
    )


def _gathered(
    p: Program, groups: ReplicaGroups, members: int, kind: PrimitiveType, sizes: list[list[int]]
) -> HloInstruction:
    operand, dimension = p.integer(0, 1), p.integer(0, 2)
    other = {0: {0: 0, 2: 1}, 1: {0: 0, 1: 2}}[operand].get(dimension)
    if dimension == (_ATTRS.lhs_contracting, _ATTRS.rhs_contracting)[operand][0]:
        kind = PrimitiveType.S32  # sums that round stay
    sizes[operand][dimension] = p.choose((1, 2, 3, 4))
    if other is not None:
        sizes[1 - operand][other] = members * sizes[operand][dimension]
    values = [p.value(kind, dims) for dims in sizes]
    values[operand] = p.b.all_gather(values[operand], groups, dimension)
    return p.b.dot(*values, _ATTRS)


def _scattered(
    p: Program, groups: ReplicaGroups, members: int, kind: PrimitiveType, sizes: list[list[int]]
) -> HloInstruction:
    dimension, size = p.integer(0, 2), members * p.choose((1, 2, 3, 4))
    for operand, place in ({0: ((0, 0), (1, 0)), 1: ((0, 1),), 2: ((1, 2),)})[dimension]:
        sizes[operand][place] = size
    product = p.b.dot(*(p.value(kind, dims) for dims in sizes), _ATTRS)
    return p.b.reduce_scatter(product, groups, dimension, ReductionKind.SUM)
