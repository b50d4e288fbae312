"""Experts on other devices, and other collectives: what is exchanged is computed before, between and behind, in any form."""

from __future__ import annotations

from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_TYPES = (PrimitiveType.F32, PrimitiveType.BF16, PrimitiveType.S32)
_DEVICES = 4
#: A product over the last dimension of one operand and the first of the other.
_MATMUL = DotAttrs((2,), (0,))
#: Sizes that are no whole number of pieces.
_ODD = (1, 3)


@trigger("exchange-pipeliner", again="pieces can be cut again")
def modules(rng: Rng) -> HloModule:
    p = Program(rng, _DEVICES)
    groups = ReplicaGroups(p.choose((((0, 1, 2, 3),), ((0, 1), (3, 2)), ((0, 2), (1, 3)))))
    experts, capacity = groups.group_size(_DEVICES), p.choose((2, 4, 6))
    kind, model, tokens = p.element_type(_TYPES), p.choose(_ODD), p.integer(1, 3)
    mask = p.value(kind, (tokens, experts, capacity))
    x = _sent(p, kind, mask, model)
    x = p.after(_exchanged(p, x, groups))
    between = x
    for _ in range(p.integer(0, 2)):
        x = _multiplied(p, x, p.choose(_ODD))
    if p.chance():
        x = _exchanged(p, x, groups)
    results = [p.after(_behind(p, x, mask))]
    if p.chance(0.3):
        results.append(p.after(between))
    return p.module(*results)


def _sent(p: Program, kind: PrimitiveType, mask: HloInstruction, model: int) -> HloInstruction:
    tokens, experts, capacity = mask.dims
    if p.chance(0.2):
        return p.value(kind, (experts, capacity, model))
    return p.b.dot(mask, p.value(kind, (tokens, model)), DotAttrs((0,), (0,)))


def _exchanged(p: Program, x: HloInstruction, groups: ReplicaGroups) -> HloInstruction:
    """Return ``x`` after an all-to-all, an all-reduce, or an all-gather and reduce-scatter.

    The all-to-all has ``x`` as it is, or with another dimension between or in front.
    """
    experts, capacity, model = x.dims
    if p.chance(0.3):
        return p.b.all_reduce(x, groups, ReductionKind.SUM)
    if p.chance(0.3):
        gathered = p.after(p.b.all_gather(x, groups, 0))
        return p.b.reduce_scatter(gathered, groups, 0, ReductionKind.SUM)
    if p.chance(0.4):
        return p.b.all_to_all(x, groups, 0)
    if p.chance():
        rows = p.b.transpose(x, (1, 0, 2))
        return p.b.transpose(p.b.all_to_all(rows, groups, 1), (1, 0, 2))
    wide = p.b.reshape(x, (1, experts, 1, capacity, model))
    return p.b.reshape(p.b.all_to_all(wide, groups, 1), x.dims)


def _multiplied(p: Program, x: HloInstruction, columns: int) -> HloInstruction:
    kind = x.array_shape.element_type
    return p.after(p.b.dot(x, p.value(kind, (x.dims[-1], columns)), _MATMUL))


def _behind(p: Program, x: HloInstruction, mask: HloInstruction) -> HloInstruction:
    """Return ``x`` as it is, multiplied, or summed over the capacity."""
    form = p.integer(0, 3)
    if form == 0:
        return x
    if form == 1:
        return _multiplied(p, x, p.integer(1, 3))
    other = mask if p.chance() else p.like(mask)
    return p.b.dot(other, x, DotAttrs((1, 2), (0, 1)))
