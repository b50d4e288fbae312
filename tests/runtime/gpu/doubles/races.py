"""Find unordered accesses of streams to memory by vector clocks, from the definition; no code of the engine is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

HOST = "host"


class RaceError(AssertionError):
    """Two accesses to the same bytes, one of them a write, that nothing orders."""


@dataclass(frozen=True)
class Bytes:
    """``dims`` elements of ``width`` bytes from ``address`` on, ``strides`` apart."""

    address: int
    width: int
    dims: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, int]:
        low = high = self.address
        for size, stride in zip(self.dims, self.strides, strict=True):
            low += min(0, (size - 1) * stride)
            high += max(0, (size - 1) * stride)
        return low, high + self.width

    def meets(self, other: Bytes) -> bool:
        if 0 in self.dims or 0 in other.dims:
            return False
        (low, high), (other_low, other_high) = self.ends, other.ends
        if high <= other_low or other_high <= low:
            return False
        start, end = max(low, other_low), min(high, other_high)
        return bool((self._mask(start, end) & other._mask(start, end)).any())

    def _mask(self, start: int, end: int) -> np.ndarray:
        mask = np.zeros(end - start, np.bool_)
        places = np.full(self.dims, self.address - start)
        for axis, (size, stride) in enumerate(zip(self.dims, self.strides, strict=True)):
            shape = [1] * len(self.dims)
            shape[axis] = size
            places = places + (np.arange(size) * stride).reshape(shape)
        for byte in range(self.width):
            found = places.ravel() + byte
            mask[found[(found >= 0) & (found < end - start)]] = True
        return mask


class Clock(dict[str, int]):
    """The amount of each agent's work that is known to be done."""

    def join(self, other: Clock) -> None:
        for agent, count in other.items():
            self[agent] = max(self.get(agent, 0), count)

    def covers(self, agent: str, count: int) -> bool:
        return self.get(agent, 0) >= count


@dataclass(frozen=True)
class Access:
    agent: str
    count: int
    what: str
    place: Bytes
    writes: bool


class Races:
    """All accesses of one device's streams that later ones may meet."""

    def __init__(self) -> None:
        self.host = Clock()
        self._accesses: list[Access] = []

    def touch(
        self, clock: Clock, agent: str, what: str, reads: list[Bytes], writes: list[Bytes]
    ) -> None:
        """``agent``, whose ``clock`` has been advanced for this, does ``what``. RaceError where it comes too early."""
        own = [Access(agent, clock[agent], what, place, False) for place in reads]
        own += [Access(agent, clock[agent], what, place, True) for place in writes]
        for access in own:
            for before in self._unordered(access, clock):
                verb = "writes" if access.writes else "reads"
                other = "written" if before.writes else "read"
                raise RaceError(
                    f"{what} on {agent} {verb} what {before.what} on {before.agent} has {other}, "
                    "without having been made to wait for it"
                )
        self._accesses.extend(own)

    def _unordered(self, access: Access, clock: Clock) -> Iterator[Access]:
        for before in self._accesses:
            if before.writes or access.writes:
                if not clock.covers(before.agent, before.count) and before.place.meets(
                    access.place
                ):
                    yield before

    def host_knows(self, clock: Clock) -> None:
        """The host has waited; what it knows to be done comes before all that it will put on streams."""
        self.host.join(clock)
        self._accesses = [a for a in self._accesses if not self.host.covers(a.agent, a.count)]
