"""Lines of devices along some axes, and the transfers within each line."""

from __future__ import annotations

from partitioner.devices.axes import Axes, DeviceAxes
from spmd.source_target_pairs import LinePairs, Mirror, Move, Rotation, Shift


def shift_pairs(axes: DeviceAxes, along: Axes, distance: int) -> LinePairs:
    """Return pairs in which every device sends to the one ``distance`` further along ``along``, if that exists."""
    return _in_lines(axes, along, Shift(distance))


def cyclic_pairs(axes: DeviceAxes, along: Axes, hops: int) -> LinePairs:
    """Return pairs in which every device sends to the one ``hops`` places further along ``along``, cyclically."""
    return _in_lines(axes, along, Rotation(hops))


def mirror_pairs(axes: DeviceAxes, along: Axes) -> LinePairs:
    """Return pairs in which the device at position k along ``along`` sends to the one at position count - 1 - k."""
    return _in_lines(axes, along, Mirror())


def _in_lines(axes: DeviceAxes, along: Axes, move: Move) -> LinePairs:
    """Apply ``move`` in lines: the partitions of a line differ only along ``along``, in the order of their
    coordinate.
    """
    return LinePairs(axes.lines(along), move)
