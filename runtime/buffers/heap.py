"""Heap simulation: offsets for intervals of time, so that what lives together lies apart.

Exact packing is NP-hard (dynamic storage allocation). ``lower_bound`` says how far off a packing can be at most, and so
when to stop:

1. Greedy: intervals go one after the other into the tightest or into the lowest gap, in the orders of
   ``placement_orders.py``, until a packing takes no more than what lives at one time.
2. Where even the best is far off, *promotion*: what ends above that bound was placed too late, when the low gaps had
   gone. It goes to the front of the order, all is placed anew, and again. Which order comes down soon cannot be told
   from where it starts, so all greedy orders take turns.

The smallest packing that was found is kept. How much is tried depends on the number of intervals alone, never on time,
so that all ranks find the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from runtime.buffers.arena import Arena, Fit, Interval, lower_bound
from runtime.buffers.placement_orders import ORDERS

#: Intervals that are placed at most, in all attempts together; the first attempt is made in any case.
MOST_PLACEMENTS = 20_000
#: A packing is as good as the bound if it takes less than this many bytes more, and no more than this part: alignment
#: may cost that, and large programs need not try orders for it.
EXACT_BYTES, EXACT_SHARE = 64, 1 / 200
#: Promotion ends within this part of the bound.
NEAR_SHARE = 1 / 50


@dataclass(frozen=True, slots=True)
class Packing:
    """``offsets`` by interval; ``size`` is the end of the highest one. ``algorithm``: how they were found, in words."""

    offsets: tuple[int, ...]
    size: int
    algorithm: str


def pack(intervals: Sequence[Interval]) -> Packing:
    """The smallest of the packings that are tried, or the first that is as small as can be."""
    bound = lower_bound(intervals)
    exact = bound + min(EXACT_BYTES - 1, int(bound * EXACT_SHARE))
    near = max(bound + int(bound * NEAR_SHARE), exact)
    best: Packing | None = None
    attempts = islice(_attempts(intervals, near), max(MOST_PLACEMENTS // max(len(intervals), 1), 1))
    for promoted, packing in attempts:
        if best is None or packing.size < best.size:
            best = packing
        if best.size <= (near if promoted else exact):
            break
    assert best is not None
    return best


def _attempts(intervals: Sequence[Interval], goal: int) -> Iterator[tuple[bool, Packing]]:
    """Greedy packings; then promotions of each in turn, until all come to what has been tried. (promoted, packing)."""
    turns = []
    tried = set()
    for fit in Fit:
        for name, order in ORDERS.items():
            turn = _Turn(intervals, tuple(order(intervals)), fit, f"{fit.value}, {name}")
            if turn.choices not in tried:
                tried.add(turn.choices)
                turns.append(turn)
                yield False, turn.packing
    while turns:
        going_on = []
        for turn in turns:
            turn.promote(goal)
            if turn.choices not in tried:
                tried.add(turn.choices)
                going_on.append(turn)
                yield True, turn.packing
        turns = going_on


class _Turn:
    """An order that is changed from round to round, and what it gives."""

    def __init__(
        self, intervals: Sequence[Interval], order: tuple[int, ...], fit: Fit, name: str
    ) -> None:
        self._intervals, self._order, self._fit, self._name = intervals, order, fit, name
        self._rounds = 0

    @property
    def choices(self) -> tuple[Fit, tuple[int, ...]]:
        """All that the packing depends on."""
        return self._fit, self._order

    def promote(self, goal: int) -> None:
        """What ends above ``goal`` bytes is to be placed first, the highest before all."""
        sized = zip(self.packing.offsets, self._intervals, strict=True)
        high = {i: offset for i, (offset, one) in enumerate(sized) if offset + one.size > goal}
        self._order = (
            *sorted((i for i in self._order if i in high), key=lambda i: -high[i]),
            *(i for i in self._order if i not in high),
        )
        self._rounds += 1
        del self.packing

    @cached_property
    def packing(self) -> Packing:
        name = f"{self._name}, {self._rounds} promotions" if self._rounds else self._name
        arena = Arena(len(self._intervals))
        offsets = [0] * len(self._intervals)
        for i in self._order:
            offset = arena.place(self._intervals[i], self._fit)
            assert offset is not None
            offsets[i] = offset
        return Packing(tuple(offsets), arena.size, name)
