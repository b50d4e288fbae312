"""Sharding groups: values with one sharding although no op connects them (JAX's ``shard_alike``).

    xla.sdy.ShardingGroup    Shardy: a call without results on each member, the group's number in its attributes
    shard_as N               GSPMD, in an annotation: all members end with one sharding
    shard_like N             GSPMD: propagation passes axes from one member to the others, no more

A group is one more ValueSharding, to which every member is connected as to a copy of itself. A sharding thus passes
from member to member in two steps, however many members there are.
"""

from __future__ import annotations

from dataclasses import field

from partitioner.devices.axes import DeviceAxes
from partitioner.propagation.driver import AxisCause, Edge, ValueSharding
from partitioner.propagation.op_priority import OpPriority
from partitioner.propagation.op_sharding_rule import identity_rule
from spmd.errors import ShardingError
from spmd.lazy_dataclass import dataclass


@dataclass(slots=True)
class ShardingGroup:
    """One sharding group. ``aligned``: all members must end with one sharding, unless annotations bind them."""

    hub: ValueSharding
    aligned: bool
    members: list[ValueSharding] = field(default_factory=list)


class ShardingGroups:
    """The groups of one module by name, in the order of first use."""

    def __init__(self) -> None:
        self._groups: dict[str, ShardingGroup] = {}

    def join(self, name: str, sharding: ValueSharding, *, aligned: bool) -> Edge:
        """Make ``sharding`` a member of group ``name``. Returns the edge to the group. Raises ShardingError if sizes
        differ.
        """
        group = self._groups.get(name)
        if group is None:
            group = ShardingGroup(ValueSharding.for_shape(sharding.shape, name), aligned)
            self._groups[name] = group
        if sharding.shape.dims != group.hub.shape.dims:
            raise ShardingError(
                f"{name}: {sharding.name} is {sharding.shape}, {group.members[0].name} is {group.hub.shape}"
            )
        group.members.append(sharding)
        rule = identity_rule(sharding.shape)
        return Edge.connect(rule, [sharding], [group.hub], name, OpPriority.KEEPS_VALUE)

    def align(self, axes: DeviceAxes) -> bool:
        """Give every member the group's sharding unless an annotation binds it. Returns whether any changed.

        Members can differ only if conflicting axes reached two of them before they reached each other.
        """
        changed = False
        for name, group in self._groups.items():
            for sharding in group.members if group.aligned else ():
                if sharding.state_dims != group.hub.state_dims and _may_assign(
                    sharding, group.hub, axes
                ):
                    sharding.dims = list(group.hub.dims)
                    cause = AxisCause(name, group.hub)
                    sharding.causes = {
                        a: sharding.causes.get(a, cause)
                        for dim_axes in sharding.dims
                        for a in dim_axes
                    }
                    for edge in sharding.edges:
                        edge.visited = -1
                    changed = True
        return changed


def _may_assign(sharding: ValueSharding, hub: ValueSharding, axes: DeviceAxes) -> bool:
    bound = any(
        dim_axes != wanted and not is_open
        for dim_axes, wanted, is_open in zip(sharding.dims, hub.dims, sharding.open, strict=True)
    )
    banned = {*sharding.forbidden, *sharding.excluded}
    return not bound and banned.isdisjoint(a for dim_axes in hub.dims for a in dim_axes)
