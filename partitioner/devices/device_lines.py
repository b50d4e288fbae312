"""Devices in lines along some axes, and who passes something on to whom in each line."""

from __future__ import annotations

from partitioner.devices.axes import Axes, DeviceAxes
from spmd.source_target_pairs import LinePairs, Mirror, Move, Rotation, Shift


def shift_pairs(axes: DeviceAxes, along: Axes, distance: int) -> LinePairs:
    """Every device gives to the one ``distance`` further along ``along``, if there is one."""
    return _in_lines(axes, along, Shift(distance))


def cyclic_pairs(axes: DeviceAxes, along: Axes, hops: int) -> LinePairs:
    """Every device gives to the one ``hops`` places further along ``along``, counted round."""
    return _in_lines(axes, along, Rotation(hops))


def mirror_pairs(axes: DeviceAxes, along: Axes) -> LinePairs:
    """The device at position k along ``along`` gives to the one at position count - 1 - k."""
    return _in_lines(axes, along, Mirror())


def _in_lines(axes: DeviceAxes, along: Axes, move: Move) -> LinePairs:
    """A line holds the partitions that differ along ``along`` alone, by their coordinate there."""
    return LinePairs(axes.lines(along), move)
