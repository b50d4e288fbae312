"""Periods: once a loop's trips repeat, the remaining ones are skipped.

The behaviour of devices does not depend on absolute time. If the state at the end of a trip equals the state at the end
of an earlier trip (the position of each device, the remaining work of transfers and the begins of waits, all relative
to now), the events in between repeat until the first device has no trip left. The totals and trip counters are then
advanced by that number of repetitions. The simulated clock does not advance; ``Timeline.skips`` records the time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

from collectives.simulate.device import Execution, Frame, Key, SimulatedDevice
from collectives.simulate.timeline import Skip, Timeline
from spmd.lazy_dataclass import dataclass

#: Largest number of trips after which a repetition of the state is recognized.
LONGEST_PERIOD = 4
#: Difference of equal times, as a fraction of the period: sums of floating-point numbers are not exact.
CLOSE = 1e-9

#: Identity of one execution of a loop: the (activities, index, trip) of each frame outside the loop.
_Around: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _State:
    """State of the simulation at the end of a trip, ``clock`` seconds into the step.

    discrete, times: figures that are equal if the state repeats (``times`` up to rounding).
    totals, busy: totals and busy seconds of each device, up to ``clock``.
    """

    clock: float
    trip: int
    discrete: tuple[Hashable, ...]
    times: tuple[float, ...]
    totals: tuple[dict[Key, float], ...]
    busy: tuple[dict[str, float], ...]


class Periods:
    """Detector of repeating states, which the engine calls at the end of each trip of a loop."""

    def __init__(
        self,
        devices: Sequence[SimulatedDevice],
        executions: Mapping[tuple[int, int], Mapping[tuple[int, ...], Execution]],
        timeline: Timeline,
    ) -> None:
        self._devices = devices
        self._executions = executions
        self._timeline = timeline
        self._seen: dict[_Around, deque[_State]] = {}

    def end_of_trip(self, device: SimulatedDevice, now: float) -> None:
        """Record that ``device`` is at the end of a trip of its innermost loop at time ``now``.

        If the state repeats, as many of the remaining trips as possible are skipped on all devices.
        """
        depth = len(device.frames) - 1
        around = _around(device.frames, depth)
        trip = device.frames[depth].trip
        loop = device.frames[depth].loop
        assert loop is not None
        if trip >= loop.trips:
            self._seen.pop(around, None)
            return
        frames = self._all_inside(around, depth)
        if frames is None or any(frame.trip < trip for frame in frames):
            return
        left = loop.trips - 1 - max(frame.trip for frame in frames)
        if left < 1:
            return
        state = self._state(device, depth, now)
        seen = self._seen.setdefault(around, deque(maxlen=LONGEST_PERIOD))
        for earlier in reversed(seen):
            if _states_match(earlier, state):
                self._skip(earlier, state, frames, left, now)
                seen.clear()
                return
        seen.append(state)

    def _all_inside(self, around: _Around, depth: int) -> list[Frame] | None:
        """Return the frames of all devices in this run of the loop; None if a device is not in it."""
        found = []
        for device in self._devices:
            if len(device.frames) <= depth or _around(device.frames, depth) != around:
                return None
            found.append(device.frames[depth])
        return found

    def _state(self, base: SimulatedDevice, depth: int, now: float) -> _State:
        """Return the state of all devices. Trips and turns are relative to those of ``base``, which is
        furthest behind.
        """
        discrete: list[Hashable] = []
        times: list[float] = []
        trip, turns = base.frames[depth].trip, base.turns
        for device in self._devices:
            frame, deeper = device.frames[depth], device.frames[depth + 1 :]
            ahead = [(site, turn - turns.get(site, 0)) for site, turn in device.turns.items()]
            awaited = [site for site, one in device.begun.items() if one and one.over is None]
            discrete += [
                (frame.index, frame.trip - trip, *((f.index, f.trip) for f in deeper)),
                (tuple(sorted(ahead)), tuple(sorted(awaited)), device.stopped is not None),
            ]
            times.append(device.compute.left_at(now))
            if device.stopped is not None:
                times.append(device.stopped[0] - now)
        for (site, turn), parts in sorted(self._executions.items()):
            for numbers, execution in sorted(parts.items()):
                discrete.append((site, turn - turns.get(site, 0), numbers, *execution.ready))
                times += [at - now for at in execution.ready.values()]
                if execution.transfer is not None:
                    times.append(execution.transfer.left_at(now))
        totals = tuple(dict(device.totals) for device in self._devices)
        busy = tuple(device.busy(now) for device in self._devices)
        clock = now + self._timeline.skipped
        return _State(clock, trip, tuple(discrete), tuple(times), totals, busy)

    def _skip(
        self, earlier: _State, state: _State, frames: Sequence[Frame], left: int, now: float
    ) -> None:
        """Repeat the change from ``earlier`` to ``state`` as often as ``left`` trips allow, in totals and trips."""
        times = left // (state.trip - earlier.trip)
        if not times:
            return
        trips = times * (state.trip - earlier.trip)
        for number, device in enumerate(self._devices):
            for key, total in list(device.totals.items()):
                more = total - earlier.totals[number].get(key, 0.0)
                if more:
                    device.totals[key] = total + times * more
            for name, busy in state.busy[number].items():
                more = busy - earlier.busy[number].get(name, 0.0)
                device.skipped_busy[name] = device.skipped_busy.get(name, 0.0) + times * more
        loop = frames[0].loop
        assert loop is not None
        self._timeline.skips.append(
            Skip(now, loop.name, trips, times * (state.clock - earlier.clock))
        )
        for frame in frames:
            frame.trip += trips


def _around(frames: Sequence[Frame], depth: int) -> _Around:
    return tuple((id(frame.activities), frame.index, frame.trip) for frame in frames[:depth])


def _states_match(earlier: _State, state: _State) -> bool:
    """Return whether two states are equal, times up to rounding."""
    if earlier.discrete != state.discrete or len(earlier.times) != len(state.times):
        return False
    close = CLOSE * (state.clock - earlier.clock)
    return all(
        math.isclose(one, other, rel_tol=0.0, abs_tol=close)
        for one, other in zip(earlier.times, state.times, strict=True)
    )
