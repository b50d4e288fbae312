"""Sums of two to four all-reduces of the same devices, behind reshapes, transposes, slices and conversions."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    reduction,
    rewritten,
    several_devices,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.reassociated import in_a_row
from tests.spmd.passes.triggers.registry import Rng, trigger

_SUMS = (ReductionKind.SUM, ReductionKind.PRODUCT, ReductionKind.XOR, ReductionKind.AND)


@trigger("all-reduce-reassociate")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode = p.element_type(), reducing_mode(p)
    count, combined = ids_of(p, mode), reduction(p, kind)
    groups, dims = equal_groups(p, count), p.dims(0, 3)

    def reduced() -> HloInstruction:
        wider = _wider(p, kind, combined)
        attrs = meeting(p, mode, rewritten(p, groups, count))
        moved = p.shuffled(range(len(dims)))
        before = [0] * len(dims)
        for i, d in enumerate(moved):
            before[d] = dims[i]
        longer = [n + p.integer(0, 1) for n in before]
        x = all_reduce(p, [p.value(wider, longer)], attrs, combined)
        if longer != before or p.chance(0.2):
            x = p.b.slice(x, [0] * len(before), before)
        if wider is not kind:
            x = p.b.convert(x, kind)
        return p.b.transpose(x, moved) if dims and p.chance(0.9) else p.b.reshape(x, dims)

    x = in_a_row(p, [reduced() for _ in range(p.integer(2, 4))], combined)
    if p.chance(0.3):
        x = p.b.reduce(p.choose((x, reduced())), p.some(range(len(dims))), combined)
    return p.module(p.after(x))


def _wider(p: Program, kind: PrimitiveType, combined: ReductionKind) -> PrimitiveType:
    """A type from which a conversion to ``kind`` may as well come first."""
    if p.chance(0.7):
        return kind
    if kind.is_integer and combined in _SUMS:
        return (
            p.choose((PrimitiveType.S64, PrimitiveType.U64, PrimitiveType.S32, kind))
            if kind.bits <= 32
            else kind
        )
    if kind in (PrimitiveType.BF16, PrimitiveType.F16) and combined not in _SUMS:
        return PrimitiveType.F32
    return kind
