"""The critical path of a step across devices: backward from the end of the device that ends last.

Where that device had waited for a collective, what went before is the transfer, and before that what the member did
that came last; what the waiting device did meanwhile is not on the path. Stretches follow one another without a gap,
from the first device's beginning to the last one's end; where the path ends at a device that began later, nothing was
recorded before.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from launch.report.overlap.model import AsyncInterval, DeviceStep, MeasuredStep, PathPiece, Slice

#: Rounding of times: a trace states a slice's begin and length, so its end is not exact to the nanosecond.
_ROUNDING = 1e-10


def critical_path(step: MeasuredStep) -> tuple[PathPiece, ...]:
    """Return the pieces of the path in order of time."""
    devices = [_Device(one) for one in step.devices]
    at = max(step.devices, key=lambda one: one.end)
    path = [*_backward(devices, at.device, at.end)]
    if path and path[-1].start > step.begin:  # the device began later than another one
        path.append(PathPiece(path[-1].device, "other", "", step.begin, path[-1].start))
    return tuple(reversed(path))


class _Device:
    """Slices that occupied a device, looked up by time."""

    def __init__(self, step: DeviceStep) -> None:
        self.leaves = [piece for piece in step.slices if piece.leaf]
        self._starts = [piece.start for piece in self.leaves]
        # In the order of their begins, which are not rounded.
        self._waits = {
            one.wait_begin: one for one in step.async_intervals if one.landed > one.wait_begin
        }

    def before(self, time: float) -> Slice | None:
        """Return the last leaf that began earlier, or None."""
        index = bisect.bisect_left(self._starts, time)
        return self.leaves[index - 1] if index else None

    def waited_for(self, piece: Slice) -> AsyncInterval | None:
        """Return the collective whose completion ended ``piece``; None if the device did not wait."""
        return self._waits.get(piece.start)


def _backward(devices: list[_Device], number: int, time: float) -> Iterator[PathPiece]:
    while True:
        device = devices[number]
        piece = device.before(time)
        if piece is None:
            return
        if piece.end < time - _ROUNDING:
            yield PathPiece(number, "other", "", piece.end, time)
            time = piece.end
        async_interval = device.waited_for(piece)
        if async_interval is None or async_interval.arrived >= time:
            yield PathPiece(number, "compute", piece.name, piece.start, time)
            time = piece.start
        else:
            # Continue at the last member to arrive: another one for which this device waited, or this device itself.
            yield PathPiece(number, "transfer", async_interval.name, async_interval.arrived, time)
            number, time = async_interval.last, async_interval.arrived
