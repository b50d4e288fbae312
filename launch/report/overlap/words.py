"""Why a flight was not hidden, or cost more than it hid, in a line: the largest part, with what it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.simulate.reasons import brief
from launch.report.overlap.exposure import ExposureInputs
from launch.report.overlap.lateness import lateness
from launch.report.overlap.model import DeviceStep, Flight, Reason, Site


def why(flight: Flight, site: Site, found: ExposureInputs, devices: Sequence[DeviceStep]) -> str:
    """ "" where nothing is exposed or slowed. ``devices``: of the flight's step."""
    reason, seconds = flight.parts[0] if flight.parts else (Reason.ORDER, 0.0)
    if flight.slowed > seconds:
        return slowing(flight.slowed)
    if seconds <= 0.0:
        return ""
    return f"{reason.value}: {_because(reason, flight, site, found, devices)}"


def slowing(seconds: float) -> str:
    """Return the sentence on a collective that costs concurrent kernels more than it is waited for."""
    return f"{Reason.CONTENTION.value}: kernels beside it take {brief(seconds)} longer than by themselves"


def _because(
    reason: Reason,
    flight: Flight,
    site: Site,
    found: ExposureInputs,
    devices: Sequence[DeviceStep],
) -> str:
    beside = _beside(site, found)
    match reason:
        case Reason.LATE_PEER:
            cause = lateness(flight, devices[flight.device], devices[flight.last])
            later = (
                f"device {flight.last} comes {brief(found.late)} later than device {flight.device}"
            )
            return f"{later}: {cause}" if cause else later
        case Reason.CONTENTION:
            return f"takes {brief(flight.seconds)}, by itself {brief(found.alone)}"
        case Reason.RESOURCE:
            return _limit(flight, site, found)
        case Reason.MEMORY:
            return f"so the scheduler says, though {beside}"
        case Reason.DEPENDENCY:
            return f"{beside}; {_between(site)}"
        case Reason.BLOCKING:
            return f"it has no start and done, though {beside}"
        case Reason.ORDER:
            return f"{beside}, but stands elsewhere in the schedule; {_between(site)}"
        case Reason.ISSUE:
            return "what the device does to start it"


def _limit(flight: Flight, site: Site, found: ExposureInputs) -> str:
    """The one of which most is; what none of the others explains has no work to be hidden by."""
    whole = dict(flight.parts)[Reason.RESOURCE]
    queued = min(max(flight.seconds - found.alone, 0.0), found.beside)
    before = max(site.held, found.kept)
    limits = (
        (
            queued,
            f"{found.other} is on its exchange for {brief(found.beside)} of its {brief(flight.seconds)}",
        ),
        (
            found.kept,
            f"{found.other} is on its exchange for {brief(found.kept)} before it is issued",
        ),
        (
            site.held,
            f"so many may be in flight at a time, says the scheduler, though {_beside(site, found)}",
        ),
        (
            whole - queued - before,
            f"its exchange is busy for {brief(found.busy)} of a step, beside {brief(found.work)} of work",
        ),
    )
    return max(limits, key=lambda limit: limit[0])[1]


def _beside(site: Site, found: ExposureInputs) -> str:
    if site.independent is None:
        return f"no one says how much work may run beside its {brief(found.alone)}"
    return f"{brief(site.independent)} of work may run beside its {brief(found.alone)}"


def _between(site: Site) -> str:
    by = f"{site.producer} makes its operand" if site.producer else "its operand is a parameter"
    to = f"{site.user} needs its result" if site.user else "its result is returned"
    return f"{by}, {to}"
