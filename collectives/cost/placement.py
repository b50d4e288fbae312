"""Placement of a collective's groups on a machine: the exchanges that they use, and the sharing of ports.

Devices stand in circles by their ids: circle of the narrowest exchange = id // its devices, and so on outwards. A
*part* of an exchange's circle is a circle of the next narrower one; of the narrowest, a device. On nodes of 8 devices:

    replica_groups=[16,8]<=[128]           8 devices meet in a node; nothing leaves it
    replica_groups=[8,16]<=[16,8]T(1,0)    16 nodes meet over InfiniBand, in each of which 8 devices send, one a group
    replica_groups=[1,128]<=[128]          8 devices meet in a node, and 16 nodes over InfiniBand, 8 devices of each
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

import numpy as np

from collectives.cost.estimator import CostError
from spmd.device_groups import DeviceGroups, Ids
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import Exchange, MachineDescription
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import device_ends, group_key, participating_groups


@dataclass(frozen=True, slots=True)
class Span:
    """Use of one exchange by a group. fan: the largest number of parts that meet in one circle.

    senders: devices of one part that send over the exchange at the same time, of all groups; groups: how many groups
    these are of. narrowest: of the machine's exchanges.
    """

    exchange: Exchange
    fan: int
    senders: int
    groups: int
    narrowest: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """Placement of a group of ``size``. spans: the exchanges that it uses, narrowest first. regular: all circles have
    the same number of members and parts.
    """

    size: int
    spans: tuple[Span, ...]
    regular: bool = True


@dataclass
class Placements:
    """Placements of the collectives of a program with so many partitions and replicas; equal groups are placed once.

    A placement is the different patterns among the groups (or pairs).
    """

    machine: MachineDescription
    num_partitions: int
    replica_count: int = 1
    _known: dict[Hashable, tuple[Pattern, ...]] = field(default_factory=dict)

    def of(self, collective: HloInstruction) -> tuple[Pattern, ...]:
        """CostError for groups that no exchange of the machine joins; ShapeError for ids that no device has."""
        key = group_key(collective)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._place(collective)
        return known

    def _place(self, collective: HloInstruction) -> tuple[Pattern, ...]:
        counts = (self.num_partitions, self.replica_count)
        if isinstance(collective.attrs, CollectivePermuteAttrs):
            return place_pairs(device_ends(collective, *counts), self.machine)
        return place_groups(participating_groups(collective, *counts), self.machine)


def place_groups(groups: DeviceGroups, machine: MachineDescription) -> tuple[Pattern, ...]:
    """Place disjoint ``groups``."""
    group, device = _members(groups)
    sizes = np.bincount(group, minlength=len(groups))
    columns: list[Ids] = []
    regular = np.ones(len(groups), bool)
    narrower = 1
    for way in machine.exchanges:
        use = _use_of(group, device, device // narrower, device // way.devices, len(groups))
        regular &= use.fan == use.least_fan
        columns += [use.fan, use.senders, use.groups]
        narrower = way.devices
    _require_joined(machine, group, device // narrower)
    table = np.stack([sizes, regular.astype(np.int64), *columns], axis=1)
    return tuple(_pattern(row.tolist(), machine.exchanges) for row in np.unique(table, axis=0))


def _members(groups: DeviceGroups) -> tuple[Ids, Ids]:
    """Group number and id of each member, by group, ids ascending."""
    order = np.lexsort((groups.devices, groups.numbers))
    return groups.numbers[order], groups.devices[order]


@dataclass(frozen=True)
class _Use:
    """Use of one exchange, with an entry for each group."""

    fan: Ids
    least_fan: Ids
    senders: Ids
    groups: Ids


def _use_of(group: Ids, device: Ids, part: Ids, circle: Ids, count: int) -> _Use:
    """Members stand by group and by id, so that those of one part, and parts of one circle, are neighbours."""
    of_group = np.diff(group, prepend=-1) != 0
    new_part = of_group | (np.diff(part, prepend=-1) != 0)
    new_circle = of_group | (np.diff(circle, prepend=-1) != 0)
    circles = np.flatnonzero(new_circle)
    parts = np.add.reduceat(new_part.astype(np.int64), circles)
    fan, least = np.zeros(count, np.int64), np.full(count, device.size + 1, np.int64)
    np.maximum.at(fan, group[circles], parts)
    np.minimum.at(least, group[circles], parts)
    crossing = fan[group] > 1
    busiest, groups = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for most, counted in ((busiest, crossing), (groups, crossing & new_part)):
        in_part = np.bincount(part[counted], minlength=int(part.max(initial=0)) + 1)
        np.maximum.at(most, group[crossing], in_part[part[crossing]])
    return _Use(fan, least, busiest, groups)


def _pattern(row: Sequence[int], exchanges: Sequence[Exchange]) -> Pattern:
    size, regular, *uses = row
    spans = []
    for i, way in enumerate(exchanges):
        fan, senders, groups = uses[3 * i : 3 * i + 3]
        if fan > 1:
            spans.append(Span(way, fan, senders, groups, narrowest=i == 0))
    return Pattern(size, tuple(spans), bool(regular))


def place_pairs(pairs: Ids, machine: MachineDescription) -> tuple[Pattern, ...]:
    """Place concurrent transfers. `pairs` has shape [n, 2] and holds (source, target); pairs with source == target are
    ignored.

    A span's senders are pairs that leave one part over its ports, or come in, whichever are more.
    """
    ends = pairs[pairs[:, 0] != pairs[:, 1]]
    patterns: list[Pattern] = []
    left, narrower = np.ones(len(ends), bool), 1
    for way in machine.exchanges:
        here = left & (ends[:, 0] // way.devices == ends[:, 1] // way.devices)
        left &= ~here
        parts = ends[here] // narrower
        load = np.zeros(len(parts), np.int64)
        for side in (0, 1):
            in_part = np.bincount(parts[:, side], minlength=int(parts.max(initial=0)) + 1)
            load = np.maximum(load, in_part[parts[:, side]])
        for busy in np.unique(load).tolist():
            patterns.append(Pattern(2, (Span(way, 2, busy, busy, narrower == 1),)))
        narrower = way.devices
    _require_joined(machine, np.repeat(np.arange(left.sum()), 2), ends[left].reshape(-1))
    return tuple(patterns)


def _require_joined(machine: MachineDescription, group: Ids, circle: Ids) -> None:
    """No group stands in two circles of the widest exchange (of none: devices)."""
    if (np.diff(circle)[np.diff(group) == 0] != 0).any():
        most = machine.exchanges[-1].devices if machine.exchanges else 1
        raise CostError(
            f"{machine.name} joins {most} devices; a collective's group spans more, or lies across them"
        )
