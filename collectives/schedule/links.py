"""When transfers on the links of one device are over: they queue, or they share.

Collectives that are kernels run one after the other on an exchange; a new one waits until its ports are free. Messages
may be concurrent: then all that send share a port's bandwidth, and the end of a transfer depends on transfers that
begin later. In either case the latency of one passes while another one sends.

Which of the two applies to messages depends on MPI and on their size. Between two hosts over TCP (MPICH and UCX), two
concurrent reductions of 1 MB both take twice as long, and of two of 64 kB the first one takes as long as alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator

from collectives.schedule.slowed_work import LoadedTransfer
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective.

    seconds: if it is alone.
    ports: (exchange, seconds for which it is busy) pairs.
    load: fraction of the device that it takes away from work.
    """

    seconds: float
    ports: tuple[tuple[str, float], ...]
    load: float = 0.0

    @property
    def sending(self) -> float:
        """Seconds that it keeps its busiest port busy."""
        return max((seconds for _, seconds in self.ports), default=0.0)

    @property
    def uses(self) -> Iterator[tuple[str, float]]:
        """Yield for each port the fraction of its time that the transfer takes while it sends."""
        total = self.sending
        return ((name, seconds / total) for name, seconds in self.ports if total)


class Links(ABC):
    """Transfers are opened in order of time. ``key``: of one of them."""

    @abstractmethod
    def open(self, key: Hashable, transfer: Transfer, now: float) -> None: ...

    @abstractmethod
    def span(self, key: Hashable) -> tuple[float, float]:
        """Return when the transfer begins and ends if nothing more is opened before."""

    @abstractmethod
    def active_transfers(self, now: float) -> list[LoadedTransfer]:
        """Return the collectives that are in flight at ``now``, or wait for their ports."""


class QueuedLinks(Links):
    """One transfer after the other on each exchange."""

    def __init__(self) -> None:
        self._spans: dict[Hashable, tuple[float, float]] = {}
        self._free: dict[str, float] = {}
        self._active: list[LoadedTransfer] = []

    def open(self, key: Hashable, transfer: Transfer, now: float) -> None:
        begun = max(now, self.free_at(transfer))
        for name, seconds in transfer.ports:
            self._free[name] = begun + seconds
        self._spans[key] = begun, begun + transfer.seconds
        self._active.append(LoadedTransfer(*self._spans[key], transfer.load))

    def span(self, key: Hashable) -> tuple[float, float]:
        return self._spans[key]

    def active_transfers(self, now: float) -> list[LoadedTransfer]:
        self._active = [one for one in self._active if one.ended > now]
        return self._active

    def free_at(self, transfer: Transfer) -> float:
        """Return the time from which on the transfer's ports are free."""
        return max((self._free.get(name, 0.0) for name, _ in transfer.ports), default=0.0)


class SharedLinks(Links):
    """Links on which all open transfers send at once; the latency of a transfer passes after its bytes are sent."""

    def __init__(self) -> None:
        self._now = 0.0
        self._transfers: dict[Hashable, Transfer] = {}
        #: Start time of each transfer, and the time at which its bytes are sent.
        self._spans: dict[Hashable, tuple[float, float]] = {}
        #: Seconds left at full rate, for each transfer that is sending.
        self._left: dict[Hashable, float] = {}

    def open(self, key: Hashable, transfer: Transfer, now: float) -> None:
        self._transfers[key] = transfer
        self._go_on(self._left, self._now, now)
        self._now = now
        self._left[key] = transfer.sending
        self._spans[key] = now, now
        for one, sent in self._go_on(dict(self._left), now, math.inf).items():
            self._spans[one] = self._spans[one][0], sent

    def span(self, key: Hashable) -> tuple[float, float]:
        (begun, sent), transfer = self._spans[key], self._transfers[key]
        return begun, sent + (transfer.seconds - transfer.sending)

    def active_transfers(self, now: float) -> list[LoadedTransfer]:
        return [self._loaded_transfer(key) for key in self._left if self._spans[key][1] > now]

    def _loaded_transfer(self, key: Hashable) -> LoadedTransfer:
        """Return the load of a transfer, spread evenly from its begin to its end."""
        (begun, sent), transfer = self._spans[key], self._transfers[key]
        return LoadedTransfer(
            begun, sent, transfer.load * min(transfer.sending / (sent - begun), 1.0)
        )

    def _go_on(
        self, left: dict[Hashable, float], now: float, until: float
    ) -> dict[Hashable, float]:
        """Take off what is sent by ``until``; when those have sent all that have by then."""
        ends: dict[Hashable, float] = {}
        while left:
            rates = self._rates(left)
            alone = {key: left[key] / rates[key] for key in left}
            passed = min([*alone.values(), until - now])
            for key, seconds in alone.items():
                left[key] -= rates[key] * passed
                if seconds <= passed:
                    ends[key] = now + passed
                    del left[key]
            now += passed
            if now >= until:
                break
        return ends

    def _rates(self, keys: Iterable[Hashable]) -> dict[Hashable, float]:
        """Return the rates, equal for all transfers on one port. (Transfers on several ports get less than fair sharing
        gives.)"""
        uses: dict[str, float] = {}
        for key in keys:
            for name, part in self._transfers[key].uses:
                uses[name] = uses.get(name, 0.0) + part
        return {
            key: 1.0 / max([1.0, *(uses[name] for name, _ in self._transfers[key].uses)])
            for key in keys
        }
