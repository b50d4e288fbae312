"""Duration of work concurrent with transfers that occupy a part of the device."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.lazy_dataclass import dataclass

#: Least fraction of its speed at which work continues during transfers.
_LEAST_SPEED = 0.05


@dataclass(frozen=True, slots=True)
class LoadedTransfer:
    """A transfer between two times. ``load``: the fraction of the device that it takes."""

    begun: float
    ended: float
    load: float


def end_of_work(now: float, seconds: float, active_transfers: Iterable[LoadedTransfer]) -> float:
    """Return the end of work that would take ``seconds`` alone and begins ``now``. ``active_transfers``: those that
    have begun, or will.
    """
    slowing = [one for one in active_transfers if one.load > 0.0 and one.ended > now]
    if not slowing:
        return now + seconds
    turns = sorted({t for one in slowing for t in (one.begun, one.ended) if t > now})
    for turn in turns:
        load = sum(one.load for one in slowing if one.begun <= now < one.ended)
        speed = max(1.0 - load, _LEAST_SPEED)
        if seconds <= (turn - now) * speed:
            return now + seconds / speed
        seconds -= (turn - now) * speed
        now = turn
    return now + seconds
