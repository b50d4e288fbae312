"""The seconds that a device waited for a collective in flight, split by reason. The parts add up to all of them.

In this order: the start itself; later members; the time above the collective's own; the time that no schedule could
have hidden; the time that limits prevented from being hidden; the rest, which is the schedule's choice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from collectives.cost.intervals import Interval, covered, crowded
from launch.report.overlap.alone import Alone, is_compute
from launch.report.overlap.model import AsyncInterval, DeviceStep, Reason, Site
from spmd.lazy_dataclass import dataclass

#: Fraction of the exposed time below which a part counts as rounding; so does a part of less than a nanosecond.
_SLIGHT = 2e-5
_NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class ExposureInputs:
    """Inputs of the exposure analysis of one collective in flight. Times are in seconds.

    late: time from when this device issued it to when the last member did.
    alone: time of the transfer alone; its measured time if that is not known.
    concurrent: part of its time in which other collectives were on its exchange.
    other: the one of these that was there longest; "" for none.
    delayed: time for which it could have been in flight before it was issued, but for the limit of collectives in
      flight.
    busy: of the step, time of all collectives of its exchange alone.
    work: of the step, time that the device computes.
    """

    late: float
    alone: float
    concurrent: float
    delayed: float
    other: str
    busy: float
    work: float


def exposure_inputs(
    async_interval: AsyncInterval, step: DeviceStep, sites: Mapping[str, Site], alone: Alone
) -> ExposureInputs:
    """Return the inputs of the exposure analysis of a collective. ``step``: that of its device."""
    others = _on_same_exchange(async_interval, step, sites)
    under_way = async_interval.arrived, async_interval.landed
    site = sites[async_interval.name]
    # A blocking collective would be exposed at any position.
    earliest = (
        async_interval.issued if site.blocking else _operand_there(async_interval, step, site)
    )
    before = earliest, async_interval.issued
    shared = [(covered(under_way, [span]) + covered(before, [span]), name) for name, span in others]
    longest, other = max(shared, default=(0.0, ""))
    spans = [span for _, span in others]
    rivals = [
        async_interval,
        *(one for one in step.async_intervals if one.name in {name for name, _ in others}),
    ]
    return ExposureInputs(
        late=max(async_interval.arrived - async_interval.issued, 0.0),
        alone=_by_itself(async_interval, alone),
        concurrent=covered(under_way, spans),
        delayed=crowded(before, spans, site.in_flight_limit),
        other=other if longest > 0.0 else "",
        busy=sum(_by_itself(one, alone) for one in dict.fromkeys(rivals)),
        work=sum(piece.seconds for piece in step.slices if is_compute(piece)),
    )


def _by_itself(async_interval: AsyncInterval, alone: Alone) -> float:
    known = alone.transfer(async_interval)
    return async_interval.seconds if known is None else known


def parts_of(
    async_interval: AsyncInterval, site: Site, found: ExposureInputs
) -> tuple[tuple[Reason, float], ...]:
    """Return the seconds of each reason, the largest first."""
    parts: dict[Reason, float] = defaultdict(float)
    for reason, seconds in _parts(async_interval, site, found):
        parts[reason] += seconds
    listed = sorted(parts.items(), key=lambda part: -part[1])
    least = max(_SLIGHT * async_interval.exposed, _NANOSECOND)
    retained = [part for part in listed if part[1] > least]
    if retained:
        # The largest part takes the rounding errors, so that the sum equals the exposed time.
        reason, _ = retained[0]
        retained[0] = reason, async_interval.exposed - sum(seconds for _, seconds in retained[1:])
    return tuple(retained)


def _parts(
    async_interval: AsyncInterval, site: Site, found: ExposureInputs
) -> Iterator[tuple[Reason, float]]:
    yield Reason.ISSUE, async_interval.issue_end - async_interval.issued
    rest = async_interval.wait_end - async_interval.wait_begin
    longer = max(async_interval.seconds - found.alone, 0.0)
    queued = min(longer, found.concurrent)
    independent = found.alone if site.independent is None else site.independent
    for reason, most in (
        (Reason.LATE_PEER, found.late),
        (Reason.RESOURCE, queued),
        (Reason.CONTENTION, longer - queued),
        (Reason.DEPENDENCY, max(found.alone - independent, 0.0)),
        (Reason.MEMORY, site.limited),
        (Reason.RESOURCE, max(site.in_flight_limited, found.delayed)),
    ):
        part = min(most, rest)
        rest -= part
        yield reason, part
    if found.busy > max(found.work, found.alone):
        # In any order, the exchange is busy for longer than there is work to hide it.
        never = min(found.busy - found.work, rest)
        rest -= never
        yield Reason.RESOURCE, never
    yield (Reason.BLOCKING if site.blocking else Reason.ORDER), rest


def _on_same_exchange(
    async_interval: AsyncInterval, step: DeviceStep, sites: Mapping[str, Site]
) -> list[tuple[str, Interval]]:
    """Return the other collectives on its exchange, with the time that they were in flight. Those without a known
    exchange are assumed to share it.
    """
    ways = frozenset(sites[async_interval.name].exchanges)
    found = []
    for other in step.async_intervals:
        theirs = sites[other.name].exchanges
        if other is not async_interval and (ways.intersection(theirs) or not (ways and theirs)):
            found.append((other.name, (other.arrived, other.landed)))
    return found


def _operand_there(async_interval: AsyncInterval, step: DeviceStep, site: Site) -> float:
    """Return when the operand's producer ended; when the collective was issued if that is unknown.

    A parameter exists when the step begins, but one of a loop's body may come from the previous trip.
    """
    if not site.producer:
        in_loop = any(
            one.name == async_interval.name and one.execution for one in step.async_intervals
        )
        return async_interval.issued if in_loop else step.begin
    ends = (piece.end for piece in step.slices if piece.name == site.producer)
    return max((end for end in ends if end <= async_interval.issued), default=async_interval.issued)
