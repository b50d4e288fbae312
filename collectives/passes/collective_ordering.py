"""Control edges that fix the order of collectives with common devices for all later schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from collectives.schedule.group_overlap import GroupClass, GroupOverlap
from spmd.analysis.live_buffers import running_computations
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class CollectiveOrdering(FueledPass):
    """Make each collective run after the last one before it with which it shares more than one device.

        a = all-reduce(x), replica_groups={{0,1},{2,3}}         a = ...
        b = all-reduce(y), replica_groups={{0,1,2,3}}     =>    b = ..., control-predecessors={a}
        c = all-reduce(z), replica_groups={{0,2},{1,3}}         c = ..., control-predecessors={b}

    The order is the present one (a schedule's, or operands first). Of starts and dones, the starts are ordered:
    collectives may still be in flight at the same time. A loop, call or conditional counts as the collectives in it.
    """

    name: ClassVar[str] = "collective-ordering"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED, Stage.SCHEDULED)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        group_overlap = GroupOverlap(module)
        changed = False
        for computation in running_computations(module):
            changed |= _order(computation, group_overlap, fuel)
        return changed


def _order(computation: HloComputation, group_overlap: GroupOverlap, fuel: Fuel) -> bool:
    last: dict[GroupClass, HloInstruction] = {}
    changed = False
    for x in computation.post_order():
        mine = group_overlap.classes_in(x)
        for before in _last_ones(mine, last, group_overlap):
            if before in x.control_predecessors or before in x.operands:
                continue
            if fuel.is_spent:
                return changed
            fuel.burn()
            before.add_control_dependency_to(x)
            changed = True
        last.update(dict.fromkeys(sorted(mine), x))
    return changed


def _last_ones(
    mine: frozenset[GroupClass],
    last: Mapping[GroupClass, HloInstruction],
    group_overlap: GroupOverlap,
) -> list[HloInstruction]:
    """Return the last collectives that share devices with ``mine``, except those that precede another one of them."""
    found = dict.fromkeys(
        earlier
        for theirs, earlier in last.items()
        if any(group_overlap.share(theirs, one) for one in mine)
    )
    implied = {before for one in found for before in (*one.control_predecessors, *one.operands)}
    return [one for one in found if one not in implied]
