"""Matching of collectives in flight on devices: the same execution of a collective on all members of its group.

Devices run one program in one order, so the n-th execution of a collective on one device meets the n-th on another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launch.report.overlap.model import DeviceStep, Flight, Site


def matched(devices: Sequence[DeviceStep], sites: Mapping[str, Site]) -> tuple[DeviceStep, ...]:
    """``devices`` of one step, in order of their numbers, their flights with members, ``last`` and ``arrived``.

    A member that did not issue it (a branch that it did not take) counts as none.
    """
    issued = [
        {(flight.name, flight.execution): flight.issued for flight in device.flights}
        for device in devices
    ]
    flown = dict.fromkeys(flight.name for device in devices for flight in device.flights)
    meetings = {name: sites[name].meetings() for name in flown}
    return tuple(
        replace(
            device, flights=tuple(_met(one, meetings[one.name], issued) for one in device.flights)
        )
        for device in devices
    )


def _met(
    flight: Flight,
    meetings: Mapping[int, tuple[int, ...]],
    issued: Sequence[Mapping[tuple[str, int], float]],
) -> Flight:
    key = flight.name, flight.execution
    members = tuple(
        member
        for member in meetings.get(flight.device, (flight.device,))
        if member < len(issued) and key in issued[member]
    )
    # The device itself, where others came at the very same time.
    last = max(members, key=lambda member: (issued[member][key], member == flight.device))
    return replace(flight, members=members, last=last, arrived=issued[last][key])
