"""Groups of devices as a value: a few numbers if the groups follow a pattern, else lists.

[4,2]<=[8]            {0,1} {2,3} {4,5} {6,7}
[4,2]<=[2,4]T(1,0)    {0,4} {1,5} {2,6} {3,7}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TypeAlias, overload

import numpy as np

from spmd.device import IotaTile
from spmd.iota import recognise_iota, strides_of
from spmd.lazy_dataclass import dataclass

Group: TypeAlias = tuple[int, ...]
Ids: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
#: Part of a device's number: id // stride % size.
Digit: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class DeviceGroups(Sequence[Group]):
    """Non-empty groups, sorted by their first member; members keep their order.

    lines: each of the devices 0..n-1 is in one group of ``size``, and the ids of the members of any group differ in the
      same digits. All notations of such groups have one form.
    listed: any other groups.

    ``DeviceGroups.of`` and ``DeviceGroups.of_lines`` choose the form. Iteration, ``members``, ``numbers`` and
      ``positions`` expand the groups, once.
    """

    lines: IotaTile | None
    listed: tuple[Group, ...] = ()

    @staticmethod
    def of(groups: Iterable[Iterable[int]]) -> DeviceGroups:
        """Return the groups that are listed one by one."""
        listed = tuple(sorted(group for group in map(tuple, groups) if group))
        sizes = {len(group) for group in listed}
        found = recognise_iota([*chain.from_iterable(listed)]) if len(sizes) == 1 else None
        lines = _canonical(IotaTile((len(listed), *sizes), *found)) if found is not None else None
        return DeviceGroups(lines) if lines is not None else DeviceGroups(None, listed)

    @staticmethod
    def of_lines(lines: IotaTile) -> DeviceGroups:
        """Return the groups that are the rows of ``lines``, whose dims are (number of groups, size)."""
        canonical = _canonical(lines)
        return DeviceGroups(canonical) if canonical else DeviceGroups.of(lines.ids().tolist())

    # ---- properties that need no list of members
    @property
    def size(self) -> int | None:
        """The number of members of every group; None if groups differ."""
        if self.lines is not None:
            return self.lines.dims[1]
        sizes = set(map(len, self.listed))
        return sizes.pop() if len(sizes) == 1 else None

    def covers(self, devices: int) -> bool:
        """Return whether every one of ``devices`` devices is in exactly one group."""
        if self.lines is not None:
            return math.prod(self.lines.dims) == devices
        return sorted(chain.from_iterable(self.listed)) == list(range(devices))

    @cached_property
    def member_strides(self) -> tuple[Digit, ...] | None:
        """The digits in which members of a group differ, major first; together they are a member's position in its
        group. None for listed groups."""
        split = _split(self.lines) if self.lines is not None else None
        return split[1] if split is not None else None

    def __len__(self) -> int:
        return self.lines.dims[0] if self.lines is not None else len(self.listed)

    # ---- written out
    @cached_property
    def members(self) -> Ids:
        """The members, [groups, size]; only for groups of one size."""
        if self.lines is not None:
            return self.lines.ids()
        assert self.size is not None
        return np.array(self.listed, np.int64).reshape(len(self), self.size)

    @cached_property
    def _flat(self) -> tuple[Ids, Ids, Ids]:
        """Return for every member its device, the number of its group, and its position in the group."""
        if self.size is not None:
            count, size = self.members.shape
            number, position = np.divmod(np.arange(count * size, dtype=np.int64), size)
            return self.members.reshape(-1), number, position
        device = np.array([*chain.from_iterable(self.listed)], np.int64)
        sizes = np.array([len(group) for group in self.listed], np.int64)
        number = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        ends = np.repeat(np.cumsum(sizes), sizes)
        return device, number, np.arange(device.size, dtype=np.int64) - ends + sizes[number]

    @property
    def devices(self) -> Ids:
        """The devices of all members, group by group."""
        return self._flat[0]

    @property
    def numbers(self) -> Ids:
        """The group number of each member, in the order of ``devices``."""
        return self._flat[1]

    def number(self, devices: int) -> Ids:
        """Return the group of each device, [devices]; -1 for a device in no group."""
        return self._by_device(1, devices)

    def positions(self, devices: int) -> Ids:
        """Return the position of each device in its group, [devices]; -1 for a device in no group."""
        return self._by_device(2, devices)

    def _by_device(self, what: int, devices: int) -> Ids:
        found = np.full(devices, -1, np.int64)
        found[self._flat[0]] = self._flat[what]
        return found

    @cached_property
    def _written(self) -> tuple[Group, ...]:
        if self.lines is None:
            return self.listed
        return tuple(map(tuple, self.members.tolist()))

    def __iter__(self) -> Iterator[Group]:
        return iter(self._written)

    @overload
    def __getitem__(self, index: int) -> Group: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Group, ...]: ...

    def __getitem__(self, index: int | slice) -> Group | tuple[Group, ...]:
        return self._written[index]


def _split(lines: IotaTile) -> tuple[tuple[Digit, ...], tuple[Digit, ...]] | None:
    """Return the digits of the line and the digits of the position in it, major first; None if one digit spans both."""
    strides = strides_of(lines.reshape_dims)
    lines_by = [(strides[d], lines.reshape_dims[d]) for d in lines.transpose_perm]
    position_by: list[Digit] = []
    left = math.prod(lines.dims[1:])
    while left > 1:
        stride, size = lines_by.pop()
        taken = math.gcd(size, left)
        if taken not in (size, left):
            return None
        position_by.append((stride, taken))
        left //= taken
        if taken < size:
            lines_by.append((stride * taken, size // taken))
    return tuple(lines_by), tuple(_merged(reversed(position_by)))


def _canonical(lines: IotaTile) -> IotaTile | None:
    """Return the canonical form of the groups, sorted by first member; None if digits do not separate line and
    position.
    """
    split = _split(lines)
    if split is None:
        return None
    by_line, by_position = split
    order = _merged(chain(sorted(by_line, reverse=True), by_position))
    major_first = sorted(order, reverse=True)
    return IotaTile(
        (math.prod(lines.dims) // math.prod(lines.dims[1:]), math.prod(lines.dims[1:])),
        tuple(size for _, size in major_first) or (1,),
        tuple(map(major_first.index, order)) or (0,),
    )


def _merged(parts: Iterable[Digit]) -> list[Digit]:
    """Merge neighbours that are one digit of the number."""
    merged: list[Digit] = []
    for stride, size in parts:
        if size == 1:
            continue
        if merged and merged[-1][0] == stride * size:
            merged[-1] = (stride, merged[-1][1] * size)
        else:
            merged.append((stride, size))
    return merged
