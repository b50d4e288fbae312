"""Placement of a collective's groups on a machine: the exchanges that they use, and the sharing of ports.

A *circle* of an exchange is a set of devices that it joins: the devices with equal id // exchange.devices. The circles
of wider exchanges contain those of narrower ones. A *part* of a circle is a circle of the next narrower exchange, or a
device if the exchange is the narrowest. For example, on nodes of 8 devices:

    replica_groups=[16,8]<=[128]           8 devices communicate within each node, and no traffic leaves the nodes
    replica_groups=[8,16]<=[16,8]T(1,0)    16 nodes communicate over InfiniBand; 8 devices of each send, one per group
    replica_groups=[1,128]<=[128]          8 devices communicate within each node, and 16 nodes over InfiniBand, with 8
                                           sending devices each
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

import numpy as np

from collectives.cost.estimator import CostError
from spmd.device_groups import DeviceGroups, Ids
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import device_ends, group_key, participating_groups


@dataclass(frozen=True, slots=True)
class Span:
    """Use of one exchange by a group.

    ``fan`` is the largest number of parts of one circle that contain members. ``senders`` is the number of devices of
    one part, of all groups, that send over the exchange at the same time, and ``groups`` the number of groups to which
    they belong. ``narrowest`` tells whether the exchange is the machine's narrowest one.
    """

    exchange: Exchange
    fan: int
    senders: int
    groups: int
    narrowest: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """Placement of a group of ``size`` members.

    ``spans`` are its uses of exchanges, narrowest first. ``regular`` tells whether all circles with members have equal
    numbers of members and parts.
    """

    size: int
    spans: tuple[Span, ...]
    regular: bool = True


@dataclass
class Placements:
    """Placements of the collectives of a program on ``num_partitions * replica_count`` devices of ``machine``.

    The placement of a collective is the set of distinct patterns of its groups or pairs. Collectives with equal groups
    are placed once.
    """

    machine: MachineDescription
    num_partitions: int
    replica_count: int = 1
    _known: dict[Hashable, tuple[Pattern, ...]] = field(default_factory=dict)

    def of(self, collective: HloInstruction) -> tuple[Pattern, ...]:
        """Return the placement of ``collective``.

        Raises CostError for a group that no exchange of the machine joins, and ShapeError for ids without a device.
        """
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
    """Return the distinct patterns of disjoint ``groups``. Raises CostError for a group that no exchange joins."""
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
    """Return the group number and the id of each member, sorted by group, then by id."""
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
    """Return the use of one exchange by each of ``count`` groups.

    ``group``, ``device``, ``part`` and ``circle`` hold the numbers of each member, sorted by group, then by device, so
    that the members of one part and the parts of one circle are adjacent.
    """
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
    """Return the pattern of a row: size, regular, then fan, senders and groups of each exchange."""
    size, regular, *uses = row
    spans = []
    for i, way in enumerate(exchanges):
        fan, senders, groups = uses[3 * i : 3 * i + 3]
        if fan > 1:
            spans.append(Span(way, fan, senders, groups, narrowest=i == 0))
    return Pattern(size, tuple(spans), bool(regular))


def place_pairs(pairs: Ids, machine: MachineDescription) -> tuple[Pattern, ...]:
    """Return the distinct patterns of concurrent transfers, each between two devices.

    ``pairs`` has shape [n, 2] and holds (source, target). Pairs with source == target are ignored. The ``senders`` of a
    span are the pairs that leave one part or those that enter it, whichever are more. Raises CostError for a pair that
    no exchange joins.
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
    """Raise CostError if a group has members in two circles of the widest exchange (devices if there is none)."""
    if (np.diff(circle)[np.diff(group) == 0] != 0).any():
        most = machine.exchanges[-1].devices if machine.exchanges else 1
        raise CostError(
            f"{machine.name} connects at most {most} devices, but a collective's group has more, or spans several such "
            "sets"
        )
