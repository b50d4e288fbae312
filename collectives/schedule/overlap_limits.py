"""How many collectives may be in flight at one time, and which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collectives.schedule.group_sharing import GroupSharing
from collectives.schedule.window_costs import Communication


@dataclass(frozen=True)
class OverlapLimits:
    """How much may be in flight at one time.

    per_exchange: collectives that use one exchange. per_kind: by the name of the kind; others have no limit of their
    own. in_flight: all together; 0 for any number. Collectives whose groups share more than one device never overlap.
    """

    per_exchange: int = 1
    per_kind: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0


class InFlight:
    """Windows that are open, and whether another one may open beside them."""

    def __init__(self, limits: OverlapLimits, sharing: GroupSharing) -> None:
        self._limits = limits
        self._sharing = sharing
        self.open: dict[int, Communication] = {}

    def admits(self, one: Communication) -> bool:
        """Whether ``one`` may be in flight beside all that are."""
        others = self.open.values()
        if not others:
            return True
        if self._limits.in_flight and len(others) >= self._limits.in_flight:
            return False
        for other in others:
            for mine in one.groups:
                if any(self._sharing.share(mine, theirs) for theirs in other.groups):
                    return False
        for exchange in one.exchanges:
            if sum(exchange in other.exchanges for other in others) >= self._limits.per_exchange:
                return False
        for kind in one.kinds:
            most = self._limits.per_kind.get(kind)
            if most is not None and sum(kind in other.kinds for other in others) >= most:
                return False
        return True
