"""Why a member came last: what it did longer than the device that waited, since both last met."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from collectives.simulate.reasons import brief
from launch.report.overlap.alone import is_compute
from launch.report.overlap.model import AsyncInterval, DeviceStep

#: Least fraction of the lateness that counts as its cause.
_TELLING = 0.25


def lateness(async_interval: AsyncInterval, own: DeviceStep, last: DeviceStep) -> str:
    """Return why the last member was late; "" if that is unknown. ``async_interval``: of ``own``; ``last``: the step of
    the member that arrived last.
    """
    late = async_interval.arrived - async_interval.issued
    own_from, last_from = _last_met(async_interval, own, last)
    theirs = _kernels(last, last_from, async_interval.arrived)
    ours = _kernels(own, own_from, async_interval.issued)
    longer = {
        f"its {name} takes {{}} longer": seconds - ours.get(name, 0.0)
        for name, seconds in theirs.items()
    }
    longer["it leaves the previous collective {} later"] = last_from - own_from
    if last_from == last.begin:
        longer["it begins its step {} later"] = longer.popitem()[1]
    for name, waited in _waits(last, last_from, async_interval.arrived):
        longer[f"it waits {{}} for {name}"] = waited
    template, seconds = max(longer.items(), key=lambda one: one[1])
    found = [template.format(brief(seconds))] if seconds > _TELLING * late else []
    if last.stolen is not None and last.stolen > _TELLING * late:
        found.append(f"its thread had no core for {brief(last.stolen)} of the step")
    return "; ".join(found)


def _last_met(
    async_interval: AsyncInterval, own: DeviceStep, last: DeviceStep
) -> tuple[float, float]:
    """Return when each left the last collective in which both took part; when its step began if there is none."""
    ends = {(one.name, one.execution): one.wait_end for one in last.async_intervals}
    met = [
        (one.wait_end, ends[one.name, one.execution])
        for one in own.async_intervals
        if async_interval.last in one.members
        and one.wait_end <= async_interval.issued
        and ends.get((one.name, one.execution), async_interval.arrived) < async_interval.arrived
    ]
    return max(met, default=(own.begin, last.begin))


def _kernels(step: DeviceStep, start: float, end: float) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for piece in step.slices:
        if is_compute(piece) and start <= piece.start < end:
            found[piece.name] += piece.seconds
    return found


def _waits(step: DeviceStep, start: float, end: float) -> Iterator[tuple[str, float]]:
    for async_interval in step.async_intervals:
        if start <= async_interval.wait_begin and async_interval.wait_end <= end:
            yield async_interval.name, async_interval.wait_end - async_interval.wait_begin
