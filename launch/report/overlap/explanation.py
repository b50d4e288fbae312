"""Why a collective was not hidden, or cost more than it hid, in a line: the largest part and its cause."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.simulate.reasons import brief
from launch.report.overlap.exposure import ExposureInputs
from launch.report.overlap.lateness import lateness
from launch.report.overlap.model import AsyncInterval, DeviceStep, Reason, Site


def why(
    async_interval: AsyncInterval, site: Site, found: ExposureInputs, devices: Sequence[DeviceStep]
) -> str:
    """Return the reason; "" if the collective was neither exposed nor slowed anything. ``devices``:
    those of its step.
    """
    reason, seconds = async_interval.parts[0] if async_interval.parts else (Reason.ORDER, 0.0)
    if async_interval.slowed > seconds:
        return slowing(async_interval.slowed)
    if seconds <= 0.0:
        return ""
    return f"{reason.value}: {_because(reason, async_interval, site, found, devices)}"


def slowing(seconds: float) -> str:
    """Return the sentence on a collective that costs concurrent kernels more than it is waited for."""
    return f"{Reason.CONTENTION.value}: kernels that overlap it take {brief(seconds)} longer than alone"


def _because(
    reason: Reason,
    async_interval: AsyncInterval,
    site: Site,
    found: ExposureInputs,
    devices: Sequence[DeviceStep],
) -> str:
    independent = _independent_work(site, found)
    match reason:
        case Reason.LATE_PEER:
            cause = lateness(
                async_interval, devices[async_interval.device], devices[async_interval.last]
            )
            late = brief(found.late)
            later = f"device {async_interval.last} arrives {late} later than device {async_interval.device}"
            return f"{later}: {cause}" if cause else later
        case Reason.CONTENTION:
            return f"its transfer takes {brief(async_interval.seconds)}, alone {brief(found.alone)}"
        case Reason.RESOURCE:
            return _limit(async_interval, site, found)
        case Reason.MEMORY:
            return f"the scheduler had too little memory to overlap it, although {independent}"
        case Reason.DEPENDENCY:
            return f"{independent}; {_between(site)}"
        case Reason.BLOCKING:
            return f"it has no start and done, although {independent}"
        case Reason.ORDER:
            return f"{independent}, but the schedule places that work elsewhere; {_between(site)}"
        case Reason.ISSUE:
            return "the device is busy starting it"


def _limit(async_interval: AsyncInterval, site: Site, found: ExposureInputs) -> str:
    """Return the largest limit. If none explains the time, there is no work to hide the collective."""
    total = dict(async_interval.parts)[Reason.RESOURCE]
    queued = min(max(async_interval.seconds - found.alone, 0.0), found.concurrent)
    before = max(site.in_flight_limited, found.delayed)
    took = brief(async_interval.seconds)
    limits = (
        (
            queued,
            f"{found.other} uses the same exchange for {brief(found.concurrent)} of its {took}",
        ),
        (
            found.delayed,
            f"{found.other} uses the same exchange for {brief(found.delayed)} before this one is issued",
        ),
        (
            site.in_flight_limited,
            f"the scheduler reached its limit of collectives in flight, although {_independent_work(site, found)}",
        ),
        (
            total - queued - before,
            f"its exchange is busy for {brief(found.busy)} of a step with {brief(found.work)} of work",
        ),
    )
    return max(limits, key=lambda limit: limit[0])[1]


def _independent_work(site: Site, found: ExposureInputs) -> str:
    if site.independent is None:
        return f"an unknown amount of work can overlap its transfer of {brief(found.alone)}"
    return f"{brief(site.independent)} of work can overlap its transfer of {brief(found.alone)}"


def _between(site: Site) -> str:
    by = f"{site.producer} produces its operand" if site.producer else "its operand is a parameter"
    to = f"{site.user} uses its result" if site.user else "its result is returned"
    return f"{by}, {to}"
