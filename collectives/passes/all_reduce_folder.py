"""An all-reduce of an all-reduce becomes one among all the devices that the two bring together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from collectives.passes.groups import among_devices
from collectives.passes.reducing import COUNTING, Reducing, reducing
from spmd.builder import ModuleScope
from spmd.device_groups import DeviceGroups
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class AllReduceFolder(InstructionPass):
    """rows = all-reduce(x), {{0,1},{2,3}}; all = all-reduce(rows), {{0,2},{1,3}}  =>  all = all-reduce(x), {{0,1,2,3}}

    The inner one must have no other user, and both must have the same reducer. Every member of a group gets the values
    of the same devices; sums count each of them once. Floats are then added in another order, and without the rounding
    of the inner result.
    """

    name: ClassVar[str] = "all-reduce-folder"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_REDUCE,)

    def traversal(self, computation: HloComputation) -> Iterable[HloInstruction]:
        return [x for x in computation.post_order() if x.opcode is Opcode.ALL_REDUCE]

    def editor(self, module: HloModule) -> Edit:
        scope, devices = ModuleScope(module), module.num_partitions * module.replica_count

        def edit(outer: HloInstruction) -> bool:
            groups = foldable(outer, devices)
            if groups is None:
                return False
            computation, inner = outer.parent, outer.operand(0)
            assert computation is not None
            attrs = among_devices(outer, groups, scope)
            folded = outer.clone(outer.shape, inner.operands, attrs=attrs)
            computation.replace(outer, computation.add(folded))
            computation.remove(inner)
            return True

        return edit


def foldable(outer: HloInstruction, devices: int) -> DeviceGroups | None:
    """Return the groups of one all-reduce that equals ``outer`` of its operand, another all-reduce. Returns None if
    there is none.
    """
    inner = outer.operand(0)
    if outer.num_operands != 1 or inner.opcode is not Opcode.ALL_REDUCE:
        return None
    if inner.num_operands != 1 or inner.num_users != 1 or inner.is_root:
        return None
    first, then = reducing(inner), reducing(outer)
    if first is None or then is None or first.kind is None or not _same_reduction(first, then):
        return None
    if not (first.groups.covers(devices) and then.groups.covers(devices)):
        return None
    return united(first.groups, then.groups, once=first.kind in COUNTING)


def _same_reduction(first: Reducing, then: Reducing) -> bool:
    return replace(first, groups=then.groups) == then


@lru_cache(maxsize=64)
def united(first: DeviceGroups, then: DeviceGroups, *, once: bool) -> DeviceGroups | None:
    """Return the groups of devices whose values each device holds after reductions over ``first`` and then over
    ``then``.

    Returns None if they form no set of groups, or, if ``once``, if a value reaches a device twice.
    """
    group_of = {device: group for group in first for device in group}
    found: dict[int, tuple[int, ...]] = {}
    for group in then:
        values = [value for device in group for value in group_of[device]]
        reached = tuple(sorted(set(values)))
        if once and len(reached) != len(values):
            return None
        if any(found.setdefault(value, reached) != reached for value in reached):
            return None
    return DeviceGroups.of(dict.fromkeys(found.values()))
