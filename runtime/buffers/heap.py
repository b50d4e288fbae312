"""Heap simulation: offsets for intervals of time, so that what lives together lies apart.

Exact packing is NP-hard (dynamic storage allocation). ``lower_bound`` says how far off a packing can be at most, and so
when to stop:

1. Greedy: intervals go one after the other into the tightest or into the lowest gap, in the orders of
   ``placement_orders.py``, until a packing takes no more than what lives at one time.
2. Where even the best of these is far off, a search for a packing of a given height (``height_search.py``).
3. Where that finds none, *promotion*: what ends above the bound was placed too late, when the low gaps had gone. It
   goes to the front of the order, all is placed anew, and again. Which order comes down soon cannot be told from where
   it starts, so all greedy orders take turns.

The smallest packing that was found is kept. How much is tried depends on the number of intervals alone, never on time,
so that all ranks find the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice

import numpy as np

from runtime.buffers.arena import Arena, Fit, Interval, items_of, lower_bound
from runtime.buffers.height_search import Preference, search_height
from runtime.buffers.placement_orders import ORDERS, Order
from spmd.literal import NDArray
from spmd.memory import out_of_memory

#: Intervals that are placed at most by greedy packings, and again by promotions, and packings that these are at most;
#: one packing is made in any case.
MOST_PLACEMENTS, MOST_ROUNDS = 20_000, 200
#: A packing is as good as the bound if it takes less than this many bytes more, and no more than this part: alignment
#: may cost that, and large programs need not try orders for it.
EXACT_BYTES, EXACT_SHARE = 64, 1 / 200
#: Within this part of the bound, greedy packings are good enough.
NEAR_SHARE = 1 / 50
#: A search takes this many steps for each interval, and no more of these.
SEARCH_STEPS, MOST_SEARCHED = 6, 400


#: Bytes of all intervals together that the native placement counts without overflow.
MOST_PACKED = 2**62


@dataclass(frozen=True, slots=True)
class Packing:
    """``offsets`` by interval; ``size`` is the end of the highest one. ``algorithm``: how they were found, in words."""

    offsets: tuple[int, ...]
    size: int
    algorithm: str


def pack(intervals: Sequence[Interval]) -> Packing:
    """The smallest of the packings that are tried, or the first that is as small as can be.

    OutOfMemoryError if sizes add up to more than 64-bit offsets count.

    The last few are remembered: schedules are chosen by what they take, and the chosen one's buffers assigned.
    """
    total = sum(one.size for one in intervals)
    if total > MOST_PACKED:
        raise out_of_memory("the program", total)
    return _packed(tuple(intervals))


@lru_cache(maxsize=16)
def _packed(intervals: tuple[Interval, ...]) -> Packing:
    bound = lower_bound(intervals)
    exact = _exact(bound)
    near = max(bound + int(bound * NEAR_SHARE), exact)
    turns = _turns(intervals)
    best = _smallest_greedy(turns, exact)
    if best.size > near:
        searched = (_searched(intervals, height) for height in (exact, near))
        best = _smallest(chain([best], *searched), near)
    if best.size > near:
        best = _smallest(chain([best], islice(_promoted(turns, near), _rounds(intervals))), near)
    return best


def fits(intervals: Sequence[Interval], size: int) -> bool:
    """Whether ``pack`` takes no more than ``size`` bytes: known as soon as one of its packings does."""
    bound = lower_bound(intervals)
    if bound > size:
        return False
    early = _smallest_greedy(_turns(intervals), max(size, _exact(bound)))
    return early.size <= size or pack(intervals).size <= size


def _exact(bound: int) -> int:
    return bound + min(EXACT_BYTES - 1, int(bound * EXACT_SHARE))


def _rounds(intervals: Sequence[Interval]) -> int:
    return min(max(MOST_PLACEMENTS // max(len(intervals), 1), 1), MOST_ROUNDS)


def _smallest(packings: Iterable[Packing], goal: int) -> Packing:
    """Of all up to the first that has no more than ``goal`` bytes; of equal ones the first."""
    best: Packing | None = None
    for packing in packings:
        if best is None or packing.size < best.size:
            best = packing
        if best.size <= goal:
            break
    assert best is not None, "there is always a greedy packing"
    return best


def _turns(intervals: Sequence[Interval]) -> list[_Turn]:
    """Of the greedy orders, as many as are tried."""
    items = items_of(intervals)
    turns = [
        _Turn(intervals, items, order, fit, f"{fit.value}, {name}")
        for fit in Fit
        for name, order in ORDERS.items()
    ]
    return turns[: _rounds(intervals)]


def _smallest_greedy(turns: Sequence[_Turn], goal: int) -> Packing:
    """As ``_smallest`` of their packings; one is given up where it grows as large as the smallest before it."""
    best = turns[0].packing
    for turn in turns[1:]:
        if best.size <= goal:
            break
        best = turn.packing_below(best.size) or best
    return best


def _searched(intervals: Sequence[Interval], height: int) -> Iterator[Packing]:
    if len(intervals) > MOST_SEARCHED:
        return
    for preference in Preference:
        offsets = search_height(intervals, height, preference, SEARCH_STEPS * len(intervals))
        if offsets is not None:
            placed = zip(offsets, intervals, strict=True)
            size = max(offset + one.size for offset, one in placed)
            yield Packing(offsets, size, f"search, {preference.value}")


def _promoted(turns: Sequence[_Turn], goal: int) -> Iterator[Packing]:
    """Promotions of each in turn, until all come to what has been tried."""
    tried = {turn.choices for turn in turns}
    while turns:
        going_on = []
        for turn in turns:
            turn.promote(goal)
            if turn.choices not in tried:
                tried.add(turn.choices)
                going_on.append(turn)
                yield turn.packing
        turns = going_on


class _Turn:
    """An order that is changed from round to round, and what it gives."""

    def __init__(
        self, intervals: Sequence[Interval], items: NDArray, order: Order, fit: Fit, name: str
    ) -> None:
        """``items``: of the intervals, in their order."""
        self._intervals, self._first_order, self._fit, self._name = intervals, order, fit, name
        self._items = items
        self._rounds = 0

    @cached_property
    def _order(self) -> tuple[int, ...]:
        return tuple(self._first_order(self._intervals))

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
        packing = self._placed(None)
        assert packing is not None, "there is room without a limit"
        return packing

    def packing_below(self, size: int) -> Packing | None:
        """The packing if it takes fewer bytes than that."""
        return self._placed(size - 1)

    def _placed(self, limit: int | None) -> Packing | None:
        arena = Arena(len(self._intervals), limit)
        order = np.array(self._order, np.int64)
        found = arena.place_all(self._items[order], self._fit)
        if found is None:
            return None
        offsets = np.empty_like(found)
        offsets[order] = found
        name = f"{self._name}, {self._rounds} promotions" if self._rounds else self._name
        return Packing(tuple(offsets.tolist()), arena.size, name)
