"""Classes of devices that behave equally, so that one device of each class is simulated.

Two devices are equivalent if no sequence of rendezvous can distinguish them. The classes are computed by colour
refinement (the coarsest equitable partition): they begin as the paces of devices and are split until, in every
collective, the devices of one class meet devices of the same classes. Groups that cover all devices evenly cause no
split, so that a program without permutes has one class, on 8 devices and on 16,384. A permute along an open line of
devices makes a class of each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from collectives.simulate.activities import Site
from spmd.device_groups import DeviceGroups
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import device_ends, group_key, participating_groups

Colors: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

#: Largest number of classes. If there are more, there is one class per pace, and all take part in every collective.
MAX_CLASSES = 512
_NO_DEVICE = -1


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """One transfer of a collective.

    members: the classes that must be ready before it begins.
    numbers: the members whose transfer it is: all members of a group, or one class of a permute.
    """

    members: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceClasses:
    """A partition of the devices into classes that behave alike.

    representatives: the lowest device of each class, ascending.
    sizes: number of devices of each class.
    paces: pace of each class.
    rendezvous_of_classes: ``[site][c]`` are the transfers of a collective in which class c is a member; empty if none.
    exact: False if there were too many classes, so that classes are by pace only.
    """

    representatives: tuple[int, ...]
    sizes: tuple[int, ...]
    paces: tuple[int, ...]
    rendezvous_of_classes: tuple[tuple[tuple[Rendezvous, ...], ...], ...]
    exact: bool = True


def classify_devices(
    sites: Sequence[Site], partitions: int, replicas: int, paces: Sequence[int] | None = None
) -> DeviceClasses:
    """Return the classes of ``partitions * replicas`` devices with respect to the collectives ``sites``.

    ``paces`` holds the pace of each device; by default all are equal.

    Raises ShapeError for groups or pairs with devices that do not exist.
    """
    count = partitions * replicas
    first = np.zeros(count, np.int64) if paces is None else np.asarray(paces, np.int64)
    patterns: dict[object, _Pattern] = {}
    of_sites = []
    for site in sites:
        key = None if site.is_copy else group_key(site.operation)
        if key not in patterns:
            patterns[key] = (
                _Alone() if site.is_copy else _pattern(site.operation, partitions, replicas)
            )
        of_sites.append(patterns[key])
    colors = _refined(_numbered(first[:, None]), list(patterns.values()))
    classes = int(colors.max(initial=0)) + 1
    if classes > MAX_CLASSES:
        return _coarse(first, of_sites)
    representatives = _first_of_each(colors, classes)
    table = {id(p): _meetings(p, colors, representatives) for p in patterns.values()}
    return DeviceClasses(
        tuple(representatives),
        tuple(np.bincount(colors, minlength=classes).tolist()),
        tuple(int(first[device]) for device in representatives),
        tuple(table[id(pattern)] for pattern in of_sites),
    )


def _coarse(first: Colors, of_sites: Sequence[_Pattern]) -> DeviceClasses:
    """Return classes by pace only, all of which take part in all collectives."""
    colors = _numbered(first[:, None])
    classes = int(colors.max()) + 1
    representatives = _first_of_each(colors, classes)
    everyone = Rendezvous(tuple(range(classes)), tuple(range(classes)))
    joint = ((everyone,),) * classes
    alone = tuple((Rendezvous((number,), (number,)),) for number in range(classes))
    return DeviceClasses(
        tuple(representatives),
        tuple(np.bincount(colors, minlength=classes).tolist()),
        tuple(int(first[device]) for device in representatives),
        tuple(alone if isinstance(pattern, _Alone) else joint for pattern in of_sites),
        exact=False,
    )


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of a collective. ``group_of[d]``: index in ``groups`` of the group of device d, or ``_NO_DEVICE``."""

    group_of: Colors
    groups: DeviceGroups

    def signatures(self, colors: Colors) -> Colors:
        """Return, for each device, a number that identifies the colours of its group's members."""
        return np.append(self._colorings(colors), _NO_DEVICE)[self.group_of][:, None]

    def _colorings(self, colors: Colors) -> Colors:
        """Return, for each group, a number that identifies the colours of its members."""
        if self.groups.size is not None:
            return _numbered(np.sort(colors[self.groups.members], axis=1))
        known: dict[bytes, int] = {}
        own = (np.sort(colors[list(group)]).tobytes() for group in self.groups)
        return np.array([known.setdefault(each, len(known)) for each in own], np.int64)

    def rendezvous(self, device: int, colors: Colors) -> Rendezvous | None:
        """Return the rendezvous whose transfer is the device's; None if it takes no part."""
        group = int(self.group_of[device])
        if group == _NO_DEVICE:
            return None
        members = tuple(np.unique(colors[list(self.groups[group])]).tolist())
        return Rendezvous(members, members)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of a permute.

    ``sources[d]`` and ``targets[d]`` are the source and the target of device d; ``_NO_DEVICE`` if it has none or is
    its own.
    """

    sources: Colors
    targets: Colors

    def signatures(self, colors: Colors) -> Colors:
        """Return, for each device, the colours of its source and its target."""
        seen = np.append(colors, _NO_DEVICE)
        return np.stack([seen[self.sources], seen[self.targets]], axis=1)

    def rendezvous(self, device: int, colors: Colors) -> Rendezvous | None:
        """Return the rendezvous whose transfer is the device's; None if it takes no part."""
        others = [int(end[device]) for end in (self.sources, self.targets)]
        met = {int(colors[one]) for one in others if one != _NO_DEVICE}
        own = int(colors[device])
        return Rendezvous(tuple(sorted({own, *met})), (own,)) if met else None


class _Alone:
    """A copy between a device and its host."""

    def signatures(self, colors: Colors) -> Colors:
        """Return, for each device, a number that is the same for all."""
        return np.zeros((len(colors), 1), np.int64)

    def rendezvous(self, device: int, colors: Colors) -> Rendezvous | None:
        """Return the rendezvous of the device with its host."""
        own = (int(colors[device]),)
        return Rendezvous(own, own)


_Pattern: TypeAlias = _Groups | _Pairs | _Alone


def _pattern(operation: HloInstruction, partitions: int, replicas: int) -> _Pattern:
    count = partitions * replicas
    if isinstance(operation.attrs, CollectivePermuteAttrs):
        sources, targets = (np.full(count, _NO_DEVICE, np.int64) for _ in range(2))
        pairs = device_ends(operation, partitions, replicas)
        moved = pairs[pairs[:, 0] != pairs[:, 1]]
        targets[moved[:, 0]] = moved[:, 1]
        sources[moved[:, 1]] = moved[:, 0]
        return _Pairs(sources, targets)
    groups = participating_groups(operation, partitions, replicas)
    return _Groups(groups.number(count), groups)


def _refined(colors: Colors, patterns: Sequence[_Pattern]) -> Colors:
    """Refine ``colors`` until no pattern distinguishes devices of one colour, or there are more than MAX_CLASSES."""
    classes = 0
    while classes < colors.max(initial=0) + 1 <= MAX_CLASSES:
        classes = int(colors.max(initial=0)) + 1
        seen = [pattern.signatures(colors) for pattern in patterns]
        colors = _numbered(np.concatenate([colors[:, None], *seen], axis=1))
    return colors


def _numbered(rows: Colors) -> Colors:
    """Number the rows from 0 in order of first occurrence; equal rows have equal numbers."""
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return np.asarray(rank[number.reshape(-1)], np.int64)


def _first_of_each(colors: Colors, classes: int) -> list[int]:
    """Return the lowest device of each colour."""
    _, first = np.unique(colors, return_index=True)
    assert len(first) == classes
    return [int(device) for device in first]


def _meetings(
    pattern: _Pattern, colors: Colors, representatives: Sequence[int]
) -> tuple[tuple[Rendezvous, ...], ...]:
    """Return, for each class, the rendezvous of which it is a member."""
    own = (pattern.rendezvous(device, colors) for device in representatives)
    of_class: list[list[Rendezvous]] = [[] for _ in representatives]
    for rendezvous in dict.fromkeys(one for one in own if one is not None):
        for number in rendezvous.members:
            of_class[number].append(rendezvous)
    return tuple(map(tuple, of_class))
