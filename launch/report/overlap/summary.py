"""Sums over typical steps: of the step, of each collective, of each device. Means, so that they add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from launch.report.overlap.alone import Alone, is_compute
from launch.report.overlap.explanation import slowing
from launch.report.overlap.model import (
    AsyncInterval,
    CollectiveOverlap,
    DeviceOverlap,
    DeviceStep,
    MeasuredRun,
    MeasuredStep,
    Reason,
    Site,
)
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Totals:
    """Means over devices and typical steps, seconds; see OverlapReport."""

    seconds: float
    reference_seconds: float | None
    compute: float
    slowed: float
    exposed: float
    hidden: float


def totals_of(scheduled: Sequence[MeasuredStep], reference_steps: Sequence[MeasuredStep]) -> Totals:
    return Totals(
        _mean(scheduled, lambda one: one.seconds),
        _mean(reference_steps, lambda one: one.seconds) if reference_steps else None,
        _mean(scheduled, _compute),
        _mean(scheduled, _slowed),
        _mean(scheduled, lambda one: _sum_over(one.async_intervals, lambda x: x.exposed)),
        _mean(scheduled, lambda one: _sum_over(one.async_intervals, lambda x: x.hidden)),
    )


def collectives_of(
    run: MeasuredRun, steps: Sequence[MeasuredStep], alone: Alone
) -> tuple[CollectiveOverlap, ...]:
    """Return the collectives in the order in which a step issues them."""
    flown: dict[str, list[AsyncInterval]] = defaultdict(list)
    for step in steps:
        for device in step.devices:
            for async_interval in device.async_intervals:
                flown[async_interval.name].append(async_interval)
    predicted = {one["op"]: one for one in (run.predicted or {}).get("collectives", [])}
    share = 1.0 / (len(steps) * run.devices)
    return tuple(
        _collective(run.sites[name], async_intervals, share, alone, predicted.get(name))
        for name, async_intervals in flown.items()
    )


def _collective(
    site: Site,
    async_intervals: Sequence[AsyncInterval],
    share: float,
    alone: Alone,
    predicted: dict[str, Any] | None,
) -> CollectiveOverlap:
    """Return the figures of one collective. ``share``: factor from a sum over all its executions to a mean over steps
    and devices.
    """

    def mean(seconds: Callable[[AsyncInterval], float]) -> float:
        return share * _sum_over(async_intervals, seconds)

    parts: dict[Reason, float] = defaultdict(float)
    late: dict[int, float] = defaultdict(float)
    for async_interval in async_intervals:
        for reason, seconds in async_interval.parts:
            parts[reason] += share * seconds
            if reason is Reason.LATE_PEER:
                late[async_interval.last] += share * seconds
    exposed, slowed = mean(lambda x: x.exposed), mean(lambda x: x.slowed)
    blocked = mean(lambda x: _or(alone.exposed(x), x.exposed))
    return CollectiveOverlap(
        site=site,
        executions=share * len(async_intervals),
        seconds=mean(lambda x: x.seconds),
        alone=mean(lambda x: _or(alone.transfer(x), x.seconds)),
        exposed=exposed,
        reference_exposed=blocked,
        hidden=mean(lambda x: x.hidden),
        slowed=slowed,
        effective=blocked - exposed - slowed,
        parts=tuple(sorted(parts.items(), key=lambda part: -part[1])),
        late=tuple(sorted(late.items(), key=lambda part: -part[1])),
        why=_why(async_intervals, parts, slowed),
        predicted=predicted["time_s"] if predicted else None,
        predicted_exposed=predicted["exposed_s"] if predicted else None,
        predicted_why=predicted["why"] if predicted else "",
    )


def _why(
    async_intervals: Sequence[AsyncInterval], parts: dict[Reason, float], slowed: float
) -> str:
    """Return the reason of the collective with most of the largest part; or its slowing of kernels if that is more."""
    largest = max(parts, key=lambda reason: parts[reason], default=None)
    if slowed > (0.0 if largest is None else parts[largest]):
        return slowing(slowed)
    if largest is None:
        return ""
    telling = [x for x in async_intervals if x.parts and x.parts[0][0] is largest and x.why]
    telling = [x for x in telling if x.slowed <= x.parts[0][1]]
    return max(telling, key=lambda x: x.parts[0][1]).why if telling else largest.value


def devices_of(run: MeasuredRun, steps: Sequence[MeasuredStep]) -> tuple[DeviceOverlap, ...]:
    awaited: dict[int, float] = defaultdict(float)
    for step in steps:
        for device in step.devices:
            for async_interval in device.async_intervals:
                awaited[async_interval.last] += dict(async_interval.parts).get(
                    Reason.LATE_PEER, 0.0
                )
    return tuple(
        _device(number, [step.devices[number] for step in steps], awaited[number] / len(steps))
        for number in range(run.devices)
    )


def _device(number: int, steps: Sequence[DeviceStep], awaited: float) -> DeviceOverlap:
    stolen = [step.stolen for step in steps if step.stolen is not None]
    return DeviceOverlap(
        number,
        fmean(step.seconds for step in steps),
        fmean(_compute(step) for step in steps),
        fmean(_slowed(step) for step in steps),
        fmean(_sum_over(step.async_intervals, lambda x: x.exposed) for step in steps),
        awaited,
        fmean(stolen) if stolen else None,
    )


def _mean(steps: Iterable[MeasuredStep], seconds: Callable[[DeviceStep], float]) -> float:
    return fmean(seconds(device) for step in steps for device in step.devices)


def _compute(step: DeviceStep) -> float:
    return sum(piece.seconds for piece in step.slices if is_compute(piece))


def _slowed(step: DeviceStep) -> float:
    """Return the seconds by which kernels concurrent with collectives were slower."""
    return _sum_over(step.async_intervals, lambda x: x.slowed)


def _sum_over(
    async_intervals: Iterable[AsyncInterval], seconds: Callable[[AsyncInterval], float]
) -> float:
    return sum(seconds(async_interval) for async_interval in async_intervals)


def _or(known: float | None, otherwise: float) -> float:
    return otherwise if known is None else known
