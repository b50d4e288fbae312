"""Sums over typical steps: of the step, of each collective, of each device. Means, so that they add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from launch.report.overlap.alone import Alone, is_compute
from launch.report.overlap.model import (
    CollectiveOverlap,
    DeviceOverlap,
    DeviceStep,
    Flight,
    MeasuredRun,
    MeasuredStep,
    Reason,
    Site,
)
from launch.report.overlap.words import slowing


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
        _mean(scheduled, lambda one: _over_flights(one.flights, lambda x: x.exposed)),
        _mean(scheduled, lambda one: _over_flights(one.flights, lambda x: x.hidden)),
    )


def collectives_of(
    run: MeasuredRun, steps: Sequence[MeasuredStep], alone: Alone
) -> tuple[CollectiveOverlap, ...]:
    """In the order in which they are issued in a step."""
    flown: dict[str, list[Flight]] = defaultdict(list)
    for step in steps:
        for device in step.devices:
            for flight in device.flights:
                flown[flight.name].append(flight)
    predicted = {one["op"]: one for one in (run.predicted or {}).get("collectives", [])}
    share = 1.0 / (len(steps) * run.devices)
    return tuple(
        _collective(run.sites[name], flights, share, alone, predicted.get(name))
        for name, flights in flown.items()
    )


def _collective(
    site: Site,
    flights: Sequence[Flight],
    share: float,
    alone: Alone,
    predicted: dict[str, Any] | None,
) -> CollectiveOverlap:
    """``share``: of a sum over all flights in a mean over steps and devices."""

    def mean(seconds: Callable[[Flight], float]) -> float:
        return share * _over_flights(flights, seconds)

    parts: dict[Reason, float] = defaultdict(float)
    late: dict[int, float] = defaultdict(float)
    for flight in flights:
        for reason, seconds in flight.parts:
            parts[reason] += share * seconds
            if reason is Reason.LATE_PEER:
                late[flight.last] += share * seconds
    exposed, slowed = mean(lambda x: x.exposed), mean(lambda x: x.slowed)
    blocked = mean(lambda x: _or(alone.exposed(x), x.exposed))
    return CollectiveOverlap(
        site=site,
        executions=share * len(flights),
        seconds=mean(lambda x: x.seconds),
        alone=mean(lambda x: _or(alone.transfer(x), x.seconds)),
        exposed=exposed,
        reference_exposed=blocked,
        hidden=mean(lambda x: x.hidden),
        slowed=slowed,
        effective=blocked - exposed - slowed,
        parts=tuple(sorted(parts.items(), key=lambda part: -part[1])),
        late=tuple(sorted(late.items(), key=lambda part: -part[1])),
        why=_why(flights, parts, slowed),
        predicted=predicted["time_s"] if predicted else None,
        predicted_exposed=predicted["exposed_s"] if predicted else None,
        predicted_why=predicted["why"] if predicted else "",
    )


def _why(flights: Sequence[Flight], parts: dict[Reason, float], slowed: float) -> str:
    """Return the reason of the collective with most of the largest part; or its slowing of kernels if that is more."""
    largest = max(parts, key=lambda reason: parts[reason], default=None)
    if slowed > (0.0 if largest is None else parts[largest]):
        return slowing(slowed)
    if largest is None:
        return ""
    telling = [x for x in flights if x.parts and x.parts[0][0] is largest and x.why]
    telling = [x for x in telling if x.slowed <= x.parts[0][1]]
    return max(telling, key=lambda x: x.parts[0][1]).why if telling else largest.value


def devices_of(run: MeasuredRun, steps: Sequence[MeasuredStep]) -> tuple[DeviceOverlap, ...]:
    awaited: dict[int, float] = defaultdict(float)
    for step in steps:
        for device in step.devices:
            for flight in device.flights:
                awaited[flight.last] += dict(flight.parts).get(Reason.LATE_PEER, 0.0)
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
        fmean(_over_flights(step.flights, lambda x: x.exposed) for step in steps),
        awaited,
        fmean(stolen) if stolen else None,
    )


def _mean(steps: Iterable[MeasuredStep], seconds: Callable[[DeviceStep], float]) -> float:
    return fmean(seconds(device) for step in steps for device in step.devices)


def _compute(step: DeviceStep) -> float:
    return sum(piece.seconds for piece in step.slices if is_compute(piece))


def _slowed(step: DeviceStep) -> float:
    """Return the seconds by which kernels concurrent with collectives were slower."""
    return _over_flights(step.flights, lambda x: x.slowed)


def _over_flights(flights: Iterable[Flight], seconds: Callable[[Flight], float]) -> float:
    return sum(seconds(flight) for flight in flights)


def _or(known: float | None, otherwise: float) -> float:
    return otherwise if known is None else known
