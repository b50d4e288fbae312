"""Two collectives of the same devices that do not need each other, among others."""

from __future__ import annotations

from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    device_total,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    several_devices,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-ordering")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind = PrimitiveType.F32
    results = [_meeting_of_all(p, p.value(kind, (3,))) for _ in range(2)]
    for _ in range(p.integer(0, 3)):
        mode = reducing_mode(p)
        attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode)))
        x = p.choose([*results, p.value(kind, (3,))])
        results.append(all_reduce(p, [x], attrs, ReductionKind.MAX))
    module = p.module(*p.shuffled(results))
    module.stage = p.choose((Stage.PARTITIONED, Stage.OPTIMIZED, Stage.SCHEDULED))
    return module


def _meeting_of_all(p: Program, x: HloInstruction) -> HloInstruction:
    groups = ReplicaGroups((tuple(range(device_total(p))),))
    return p.b.all_reduce(x, groups, ReductionKind.SUM)
