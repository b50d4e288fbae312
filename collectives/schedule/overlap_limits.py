"""Limits of the collectives in flight at one time."""

from __future__ import annotations

from functools import partial
from itertools import product

from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.window_costs import Communication
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: Limit for collectives by messages: one sends bytes during the latency of another.
BY_MESSAGES = 2


@dataclass(frozen=True)
class OverlapLimits:
    """Limits of the collectives in flight at one time.

    per_exchange: largest number of collectives that use one exchange.
    apart: collectives whose groups share more than one device never overlap, since one in flight occupies its devices.
    in_flight: largest number of all collectives; 0 for no limit.
    """

    per_exchange: int = 1
    apart: bool = True
    in_flight: int = 0

    @staticmethod
    def on(machine: MachineDescription) -> OverlapLimits:
        """Return the limits of a machine's collectives.

        Those of GPUs are kernels, which hold on to processors until their peers come. Processes exchange messages, and
        one that waits for some collective lets all others go on.
        """
        if machine.is_gpu:
            return OverlapLimits()
        return OverlapLimits(per_exchange=BY_MESSAGES, apart=False)


class InFlight:
    """Open windows, and whether another one may open while they are."""

    def __init__(self, limits: OverlapLimits, group_overlap: GroupOverlap) -> None:
        self._limits = limits
        self._group_overlap = group_overlap
        self.open: dict[int, Communication] = {}

    def admits(self, one: Communication) -> bool:
        """Return whether ``one`` may be in flight along with all that are."""
        others = self.open.values()
        if not others:
            return True
        if self._limits.in_flight and len(others) >= self._limits.in_flight:
            return False
        if self._limits.apart and any(map(partial(self._share_devices, one), others)):
            return False
        most = self._limits.per_exchange
        return all(
            sum(exchange in other.exchanges for other in others) < most
            for exchange in one.exchanges
        )

    def _share_devices(self, one: Communication, other: Communication) -> bool:
        pairs = product(one.groups, other.groups)
        return any(self._group_overlap.share(mine, theirs) for mine, theirs in pairs)
