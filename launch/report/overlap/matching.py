"""Matching of collectives in flight on devices: the same execution of a collective on all members of its group.

Devices run one program in one order, so the n-th execution of a collective on one device matches the n-th on another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launch.report.overlap.model import AsyncInterval, DeviceStep, Site


def matched(devices: Sequence[DeviceStep], sites: Mapping[str, Site]) -> tuple[DeviceStep, ...]:
    """Return ``devices`` of one step, in order of their numbers, with members, ``last`` and ``arrived`` of their
    collectives.

    A device that did not issue a collective (it took another branch) is no member.
    """
    issued = [
        {
            (async_interval.name, async_interval.execution): async_interval.issued
            for async_interval in device.async_intervals
        }
        for device in devices
    ]
    flown = dict.fromkeys(
        async_interval.name for device in devices for async_interval in device.async_intervals
    )
    meetings = {name: sites[name].meetings() for name in flown}
    return tuple(
        replace(
            device,
            async_intervals=tuple(
                _met(one, meetings[one.name], issued) for one in device.async_intervals
            ),
        )
        for device in devices
    )


def _met(
    async_interval: AsyncInterval,
    meetings: Mapping[int, tuple[int, ...]],
    issued: Sequence[Mapping[tuple[str, int], float]],
) -> AsyncInterval:
    key = async_interval.name, async_interval.execution
    members = tuple(
        member
        for member in meetings.get(async_interval.device, (async_interval.device,))
        if member < len(issued) and key in issued[member]
    )
    # If others arrived at exactly the same time, the device itself counts as the last one.
    last = max(members, key=lambda member: (issued[member][key], member == async_interval.device))
    return replace(async_interval, members=members, last=last, arrived=issued[last][key])
