"""Devices in lines along some axes, and who passes something on to whom in each line."""

from __future__ import annotations

from functools import lru_cache

from partitioner.axes import Axes, DeviceAxes


def lines_along(axes: DeviceAxes, along: Axes) -> list[list[int]]:
    """The devices that differ along ``along`` alone, ordered by their coordinate there, line by line."""
    offsets = [0]
    for axis in along:
        stride, size = axes.stride(axis), axes.sizes[axis]
        offsets = [offset + digit * stride for offset in offsets for digit in range(size)]
    first = [
        device
        for device in range(axes.num_devices)
        if all(device // axes.stride(axis) % axes.sizes[axis] == 0 for axis in along)
    ]
    return [[base + offset for offset in offsets] for base in first]


@lru_cache(maxsize=256)
def shift_pairs(axes: DeviceAxes, along: Axes, distance: int) -> tuple[tuple[int, int], ...]:
    """(source, target) of every device whose coordinate along ``along`` plus ``distance`` exists."""
    return tuple(
        (source, line[i + distance])
        for line in lines_along(axes, along)
        for i, source in enumerate(line)
        if 0 <= i + distance < len(line)
    )
