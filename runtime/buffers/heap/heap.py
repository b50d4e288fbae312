"""Heap simulation: offsets for live intervals such that intervals that overlap in time do not overlap in memory.

Exact packing is NP-hard (dynamic storage allocation). ``lower_bound`` bounds the loss of a packing, and so decides when
to stop:

1. Greedy: intervals go one after the other into the tightest or into the lowest gap, in the orders of
   ``placement_orders.py``, until a packing takes no more than the maximum of live bytes.
2. If even the best of these is far off, *promotion*: intervals that end above the bound were placed too late, after the
   low gaps were taken. They go to the front of the order, all are placed again, and so on. It is not known in advance
   which order improves soon, so all greedy orders take turns.

The smallest packing found is used. The effort depends on the number of intervals only, never on time, so that all ranks
find the same packing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, islice

import numpy as np

from runtime.buffers.heap.arena import Arena, Fit, Interval, items_of, lower_bound
from runtime.buffers.heap.placement_orders import ORDERS, Order
from spmd.lazy_dataclass import dataclass
from spmd.limits import out_of_memory
from spmd.literal import NDArray

#: Most intervals that greedy packings place, and again promotions, and most packings that these
#: make; at least one packing is made.
MOST_PLACEMENTS, MOST_ROUNDS = 20_000, 200
#: A packing is as good as the bound if it takes less than this many bytes more, and at most this part
#: more: alignment may cost that, and large programs need not try orders for it.
EXACT_BYTES, EXACT_SHARE = 64, 1 / 200
#: Greedy packings are good enough if they exceed the bound by at most this part of it.
GOOD_SHARE = 1 / 50

#: Largest sum of bytes that the native placement counts without overflow.
MOST_PACKED = 2**62


@dataclass(frozen=True, slots=True)
class Packing:
    """Packing. ``offsets`` by interval; ``size``: end of the highest one; ``algorithm``: how it was found."""

    offsets: tuple[int, ...]
    size: int
    algorithm: str


def pack(intervals: Sequence[Interval]) -> Packing:
    """Return the smallest of the packings that are tried, or the first that is as good as the bound.

    Raises OutOfMemoryError if sizes add up to more than 64-bit offsets count.

    The last few are cached: schedules are compared by their packings, then buffers of the chosen one are assigned.
    """
    total = sum(one.size for one in intervals)
    if total > MOST_PACKED:
        raise out_of_memory("the program", total)
    return _packed(tuple(intervals))


@lru_cache(maxsize=16)
def _packed(intervals: tuple[Interval, ...]) -> Packing:
    bound = lower_bound(intervals)
    exact = _exact(bound)
    good = max(bound + int(bound * GOOD_SHARE), exact)
    turns = _turns(intervals)
    best = _smallest_greedy(turns, exact)
    if best.size > good:
        best = _smallest(chain([best], islice(_promoted(turns, good), _rounds(intervals))), good)
    return best


def fits(intervals: Sequence[Interval], size: int) -> bool:
    """Return whether ``pack`` takes at most ``size`` bytes. Stops as soon as one packing does."""
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
    """Return the first packing of at most ``goal`` bytes, else the first of the smallest ones."""
    best: Packing | None = None
    for packing in packings:
        if best is None or packing.size < best.size:
            best = packing
        if best.size <= goal:
            break
    assert best is not None, "there is always a greedy packing"
    return best


def _turns(intervals: Sequence[Interval]) -> list[_Turn]:
    """Return one turn per greedy order, as many as are tried."""
    items = items_of(intervals)
    turns = [
        _Turn(intervals, items, order, fit, f"{fit.value}, {name}")
        for fit in Fit
        for name, order in ORDERS.items()
    ]
    return turns[: _rounds(intervals)]


def _smallest_greedy(turns: Sequence[_Turn], goal: int) -> Packing:
    """Return ``_smallest`` of their packings; a packing is given up when it reaches the smallest size before it."""
    best = turns[0].packing
    for turn in turns[1:]:
        if best.size <= goal:
            break
        best = turn.packing_below(best.size) or best
    return best


def _promoted(turns: Sequence[_Turn], goal: int) -> Iterator[Packing]:
    """Yield promoted packings of each turn in rotation, until all orders have been tried."""
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
    """Order that changes from round to round, and its packing."""

    def __init__(
        self, intervals: Sequence[Interval], items: NDArray, order: Order, fit: Fit, name: str
    ) -> None:
        """``items``: rows of the intervals, in the same order."""
        self._intervals, self._first_order, self._fit, self._name = intervals, order, fit, name
        self._items = items
        self._rounds = 0

    @cached_property
    def _order(self) -> tuple[int, ...]:
        return tuple(self._first_order(self._intervals))

    @property
    def choices(self) -> tuple[Fit, tuple[int, ...]]:
        """All inputs of the packing."""
        return self._fit, self._order

    def promote(self, goal: int) -> None:
        """Move intervals that end above ``goal`` bytes to the front of the order, the highest first."""
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
        """Return the packing if it takes fewer than ``size`` bytes, else None."""
        return self._placed(size - 1)

    def _placed(self, limit: int | None) -> Packing | None:
        arena = Arena(len(self._intervals), limit)
        order = np.array(self._order, np.int64)
        found = arena.allocate_all(self._items[order], self._fit)
        if found is None:
            return None
        offsets = np.empty_like(found)
        offsets[order] = found
        name = f"{self._name}, {self._rounds} promotions" if self._rounds else self._name
        return Packing(tuple(offsets.tolist()), arena.size, name)
