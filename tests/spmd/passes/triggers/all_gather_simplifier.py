"""All-gathers over groups of one device, of one array or two."""

from __future__ import annotations

from spmd.device import CollectiveGroupMode
from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import equal_groups, ids_of, meeting, several_devices
from tests.spmd.passes.triggers.gathers import all_gather, part
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    replicas = [CollectiveGroupMode.CROSS_REPLICA] if p.result.replica_count > 1 else []
    mode = p.choose([CollectiveGroupMode.FLATTENED_ID, *replicas])
    alone = equal_groups(p, ids_of(p, mode), (1,))
    kind = p.element_type()
    operands = [part(p, kind) for _ in range(p.integer(1, 2))]
    gathered = all_gather(p, operands, meeting(p, mode, alone, 0))
    return p.module(*[p.after(x) for x in parts(p, gathered)])
