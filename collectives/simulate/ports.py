"""Ports: the links of each device, whose bandwidth concurrent transfers share.

A transfer that is alone proceeds at rate 1 and takes the seconds of its collective on free links. It keeps a port busy
for a fraction of that time, its *use* of the port. If the uses of a port by its transfers add up to more than 1, the
transfers slow down to one common rate, except those that another port slows down even more (max-min fair sharing).
Rates change when a transfer begins or ends, and only those of transfers that share ports with it, directly or through
other transfers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from spmd.lazy_dataclass import dataclass

#: Limits of a transfer's rate: the name of an exchange, and the keys of the other transfers on it.
LimitedBy: TypeAlias = tuple[tuple[str, Hashable], ...]

#: Rates and uses closer than this are equal.
_EQUAL = 1e-12


@dataclass(eq=False, slots=True)
class Transfer:
    """One execution of a collective, from when all its members are ready until it is over.

    uses: fraction of each port's time that it takes at rate 1; 0 < use <= 1.
    begin: when it began.
    left: seconds at rate 1 that were left at ``since``.
    rate: present rate, at most 1.
    version: number of changes of the rate; it tells outdated events from valid ones.
    limited_by: the exchanges that limit the rate, with the other transfers on them.
    delays: seconds lost so far, by exchange and other transfer.
    """

    key: Hashable
    uses: Mapping[Port, float]
    begin: float
    left: float
    since: float = 0.0
    rate: float = 0.0
    version: int = 0
    limited_by: LimitedBy = ()
    delays: dict[tuple[str, Hashable], float] = field(default_factory=dict)

    def end(self) -> float:
        """Return when the transfer is over at the present rate."""
        return self.since + self.left / self.rate

    def left_at(self, now: float) -> float:
        """Return the seconds at rate 1 that are left at time ``now``."""
        return max(self.left - self.rate * (now - self.since), 0.0)

    def proceed(self, now: float) -> None:
        """Advance the transfer to time ``now`` at its present rate, and attribute the delay to what limits the rate."""
        gone = now - self.since
        if gone > 0.0:
            self.left = self.left_at(now)
            lost = gone * (1.0 - self.rate)
            for reason in self.limited_by:
                self.delays[reason] = self.delays.get(reason, 0.0) + lost / len(self.limited_by)
        self.since = now


@dataclass(eq=False, slots=True)
class Meter:
    """Busy time of a resource: ``busy`` seconds until ``since``, the fraction ``load`` of the time from then on."""

    load: float = 0.0
    busy: float = 0.0
    since: float = 0.0

    def until(self, now: float) -> float:
        """Return the busy seconds until ``now``."""
        return self.busy + self.load * (now - self.since)

    def set(self, load: float, now: float) -> None:
        """Change the load from ``now`` on."""
        self.busy, self.since, self.load = self.until(now), now, load


@dataclass(eq=False, slots=True)
class Port:
    """The links of one device to one exchange, with the transfers that use them."""

    exchange: str
    transfers: dict[Transfer, None] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)


def begin(transfer: Transfer, now: float) -> list[Transfer]:
    """Add ``transfer`` to its ports at time ``now``. Returns the transfers with new rates, including ``transfer``."""
    transfer.since = now
    for port in transfer.uses:
        port.transfers[transfer] = None
    return _settle([transfer], transfer.uses, now)


def finish(transfer: Transfer, now: float) -> list[Transfer]:
    """Remove ``transfer`` from its ports at time ``now``. Returns the transfers whose rates changed."""
    transfer.proceed(now)
    for port in transfer.uses:
        del port.transfers[transfer]
    return _settle([], transfer.uses, now)


def _settle(first: Iterable[Transfer], ports: Iterable[Port], now: float) -> list[Transfer]:
    """Compute the rates of ``first`` and of all transfers that share ports with them or with ``ports``. Returns those
    whose rate changed.
    """
    transfers, around = _component(first, ports)
    changed = []
    rates = fair_rates(transfers)
    for transfer, (rate, limited_by) in rates.items():
        transfer.proceed(now)
        transfer.limited_by = limited_by
        if abs(rate - transfer.rate) > _EQUAL:
            transfer.rate = rate
            transfer.version += 1
            changed.append(transfer)
    for port in around:
        port.meter.set(sum(t.rate * t.uses[port] for t in port.transfers), now)
    return changed


def _component(
    first: Iterable[Transfer], ports: Iterable[Port]
) -> tuple[dict[Transfer, None], dict[Port, None]]:
    """Return ``first`` and all transfers that share ports with ``ports``, transitively, and the ports that they use."""
    transfers = dict.fromkeys(first)
    around = dict.fromkeys(ports)
    stack = list(around)
    while stack:
        for transfer in stack.pop().transfers:
            transfers.setdefault(transfer)
            for port in transfer.uses:
                if port not in around:
                    around[port] = None
                    stack.append(port)
    return transfers, around


def fair_rates(transfers: Iterable[Transfer]) -> dict[Transfer, tuple[float, LimitedBy]]:
    """Return the rate of each transfer, at most 1, and its limit: the full port's exchange and other transfers.

    The rates are max-min fair, computed by progressive filling (D. Bertsekas, R. Gallager, Data Networks, 1992): all
    rates rise together until a port is full; its transfers keep that rate while the other rates continue to rise.
    """
    rising = dict.fromkeys(transfers)
    found: dict[Transfer, tuple[float, LimitedBy]] = {}
    taken: dict[Port, float] = {}
    while rising:
        level, full = 1.0, None
        for port in dict.fromkeys(port for transfer in rising for port in transfer.uses):
            use = sum(t.uses[port] for t in port.transfers if t in rising)
            limit = (1.0 - taken.get(port, 0.0)) / use
            if limit < level - _EQUAL:
                level, full = limit, port
        stopped = list(rising) if full is None else [t for t in full.transfers if t in rising]
        for transfer in stopped:
            found[transfer] = level, _others(transfer, full)
            del rising[transfer]
            for port, use in transfer.uses.items():
                taken[port] = taken.get(port, 0.0) + level * use
    return found


def _others(transfer: Transfer, full: Port | None) -> LimitedBy:
    """Return the exchange of the port ``full`` with each other transfer on it; empty if ``full`` is None."""
    if full is None:
        return ()
    return tuple((full.exchange, one.key) for one in full.transfers if one is not transfer)
