"""Schedules in which a collective stands twice, the second one soon after the first one's last use."""

from __future__ import annotations

from dataclasses import replace

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    several_devices,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("schedule-aware-cse", options="distance=6")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    x = p.parameter(p.shape((PrimitiveType.F32, PrimitiveType.S32), 1, 2))
    mode = reducing_mode(p)
    attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode)), dimension=0)
    gathers = p.chance()
    results: list[HloInstruction] = []
    for _ in range(p.integer(2, 3)):
        channel = p.b.scope.channel_id() if attrs.channel_id is not None else None
        own = replace(attrs, channel_id=channel)
        if gathers:
            y = p.b.create(Opcode.ALL_GATHER, (x,), own)
        else:
            y = all_reduce(p, [x], replace(own, dimension=None), ReductionKind.MAX)
        results.append(_used(p, y))
    module = p.module(*results)
    module.stage = Stage.SCHEDULED
    return module


def _used(p: Program, y: HloInstruction) -> HloInstruction:
    for _ in range(p.integer(0, 2)):
        y = p.b.copy(y)
    return y
