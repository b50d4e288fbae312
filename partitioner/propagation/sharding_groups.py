"""Sharding groups: values with one sharding although no op connects them (JAX's ``shard_alike``).

    xla.sdy.ShardingGroup    Shardy: a call without results on each member, the group's number in its attributes
    shard_as N               GSPMD, in an annotation: all members end with one sharding
    shard_like N             GSPMD: what one member has is offered to the others, no more

A group is one more slot, to which every member is tied as to a copy of itself. A sharding thus passes from member to
member in two steps, however many members there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from partitioner.devices.axes import DeviceAxes
from partitioner.propagation.driver import AxisCause, Edge, Slot
from partitioner.propagation.op_priority import OpPriority
from partitioner.propagation.op_sharding_rule import identity_rule
from spmd.errors import ShardingError


@dataclass(slots=True)
class ShardingGroup:
    """One sharding group. ``aligned``: all members must end with one sharding, unless annotations bind them."""

    hub: Slot
    aligned: bool
    members: list[Slot] = field(default_factory=list)


class ShardingGroups:
    """The groups of one module by name, in the order of first use."""

    def __init__(self) -> None:
        self._groups: dict[str, ShardingGroup] = {}

    def join(self, name: str, slot: Slot, *, aligned: bool) -> Edge:
        """Make ``slot`` a member of group ``name``. Returns the edge to the group. Raises ShardingError if sizes
        differ.
        """
        group = self._groups.get(name)
        if group is None:
            group = ShardingGroup(Slot.for_shape(slot.shape, name), aligned)
            self._groups[name] = group
        if slot.shape.dims != group.hub.shape.dims:
            raise ShardingError(
                f"{name}: {slot.name} is {slot.shape}, {group.members[0].name} is {group.hub.shape}"
            )
        group.members.append(slot)
        rule = identity_rule(slot.shape)
        return Edge.connect(rule, [slot], [group.hub], name, OpPriority.KEEPS_VALUE)

    def align(self, axes: DeviceAxes) -> bool:
        """Give every member the group's sharding unless an annotation binds it. Returns whether any changed.

        Members can differ only if conflicting axes reached two of them before they reached each other.
        """
        changed = False
        for name, group in self._groups.items():
            for slot in group.members if group.aligned else ():
                if slot.state_dims != group.hub.state_dims and _may_take(slot, group.hub, axes):
                    slot.dims = list(group.hub.dims)
                    cause = AxisCause(name, group.hub)
                    slot.causes = {a: slot.causes.get(a, cause) for held in slot.dims for a in held}
                    for edge in slot.edges:
                        edge.visited = -1
                    changed = True
        return changed


def _may_take(slot: Slot, hub: Slot, axes: DeviceAxes) -> bool:
    bound = any(
        held != wanted and not is_open
        for held, wanted, is_open in zip(slot.dims, hub.dims, slot.open, strict=True)
    )
    banned = {*slot.forbidden, *slot.excluded}
    return not bound and banned.isdisjoint(a for held in hub.dims for a in held)
