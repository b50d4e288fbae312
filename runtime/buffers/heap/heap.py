"""Heap simulation: offsets for live intervals such that intervals that overlap in time do not overlap in memory.

Exact packing is NP-hard (dynamic storage allocation). ``lower_bound`` bounds the loss of a packing, and so decides when
to stop:

1. Greedy packing: intervals are placed one after another in the smallest or in the lowest gap, in each of the orders of
   ``placement_orders.py``, until a packing takes no more than the maximum of live bytes.
2. If the best of these packings exceeds the bound by more than 2 %, *promotion*: intervals that end above the bound
   were placed too late, when the low gaps were taken. They are moved to the front of the order, and all intervals are
   placed again, repeatedly. Which order improves soon is not known in advance, so all greedy orders take turns.

The smallest packing that is found is used. The effort depends only on the number of intervals, never on time, so that
all ranks find the same packing.
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

#: The greedy packings together place at most MOST_PLACEMENTS intervals, and so do the promotions; each of the two makes
#: at most MOST_ROUNDS packings, and at least one.
MOST_PLACEMENTS, MOST_ROUNDS = 20_000, 200
#: A packing counts as optimal if it exceeds the lower bound by less than EXACT_BYTES and by at most the fraction
#: EXACT_SHARE. Alignment may cost that much, and large programs need not try more orders to save it.
EXACT_BYTES, EXACT_SHARE = 64, 1 / 200
#: Greedy packings are good enough if they exceed the lower bound by at most this fraction of it.
GOOD_SHARE = 1 / 50

#: Largest sum of bytes that the native placement counts without overflow.
MOST_PACKED = 2**62


@dataclass(frozen=True, slots=True)
class Packing:
    """Offsets of intervals in a heap.

    offsets: offset of each interval in bytes. size: end of the highest interval. algorithm: name of the algorithm that
    found the packing.
    """

    offsets: tuple[int, ...]
    size: int
    algorithm: str


def pack(intervals: Sequence[Interval]) -> Packing:
    """Return the first packing whose size is near the lower bound, or else the smallest of those that are tried.

    The last results are cached, because schedules are compared by their packings before buffers of the chosen schedule
    are assigned. Raises OutOfMemoryError if the sum of the sizes exceeds 64-bit offsets.
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
    """Return whether a packing that ``pack`` tries takes at most ``size`` bytes. It stops at the first such packing."""
    bound = lower_bound(intervals)
    if bound > size:
        return False
    early = _smallest_greedy(_turns(intervals), max(size, _exact(bound)))
    return early.size <= size or pack(intervals).size <= size


def _exact(bound: int) -> int:
    """Return the largest size in bytes of a packing that counts as optimal for the lower bound ``bound``."""
    return bound + min(EXACT_BYTES - 1, int(bound * EXACT_SHARE))


def _rounds(intervals: Sequence[Interval]) -> int:
    """Return the number of greedy packings, and of promotions, that are tried."""
    return min(max(MOST_PLACEMENTS // max(len(intervals), 1), 1), MOST_ROUNDS)


def _smallest(packings: Iterable[Packing], goal: int) -> Packing:
    """Return the first packing of at most ``goal`` bytes, else the first of the smallest packings."""
    best: Packing | None = None
    for packing in packings:
        if best is None or packing.size < best.size:
            best = packing
        if best.size <= goal:
            break
    assert best is not None, "there is always a greedy packing"
    return best


def _turns(intervals: Sequence[Interval]) -> list[_Turn]:
    """Return a turn for each fit and greedy order, as many as ``_rounds`` allows."""
    items = items_of(intervals)
    turns = [
        _Turn(intervals, items, order, fit, f"{fit.value}, {name}")
        for fit in Fit
        for name, order in ORDERS.items()
    ]
    return turns[: _rounds(intervals)]


def _smallest_greedy(turns: Sequence[_Turn], goal: int) -> Packing:
    """Return ``_smallest`` of the packings of ``turns``. A packing is given up when it is as large as the best one."""
    best = turns[0].packing
    for turn in turns[1:]:
        if best.size <= goal:
            break
        best = turn.packing_below(best.size) or best
    return best


def _promoted(turns: Sequence[_Turn], goal: int) -> Iterator[Packing]:
    """Yield promoted packings of the turns in rotation. A turn ends when its order has been tried before."""
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
    """Order of intervals that promotion changes, and the packing in this order."""

    def __init__(
        self, intervals: Sequence[Interval], items: NDArray, order: Order, fit: Fit, name: str
    ) -> None:
        """Create the turn of a greedy ``order`` and ``fit``.

        items: ``items_of(intervals)``. name: name of the algorithm for the packing.
        """
        self._intervals, self._first_order, self._fit, self._name = intervals, order, fit, name
        self._items = items
        self._rounds = 0

    @cached_property
    def _order(self) -> tuple[int, ...]:
        return tuple(self._first_order(self._intervals))

    @property
    def choices(self) -> tuple[Fit, tuple[int, ...]]:
        """Return the inputs of the packing other than the intervals: the fit and the order."""
        return self._fit, self._order

    def promote(self, goal: int) -> None:
        """Move the intervals that end above ``goal`` bytes to the front of the order, the highest first."""
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
        """Return the packing in the present order."""
        packing = self._placed(None)
        assert packing is not None, "there is room without a limit"
        return packing

    def packing_below(self, size: int) -> Packing | None:
        """Return the packing if it takes fewer than ``size`` bytes, else None."""
        return self._placed(size - 1)

    def _placed(self, limit: int | None) -> Packing | None:
        """Return the packing in the present order; None if it exceeds ``limit`` bytes."""
        arena = Arena(len(self._intervals), limit)
        order = np.array(self._order, np.int64)
        found = arena.allocate_all(self._items[order], self._fit)
        if found is None:
            return None
        offsets = np.empty_like(found)
        offsets[order] = found
        name = f"{self._name}, {self._rounds} promotions" if self._rounds else self._name
        return Packing(tuple(offsets.tolist()), arena.size, name)
