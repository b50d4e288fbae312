"""Backtracking search, bottom up, for a packing of at most a given height.

Any packing can be pushed down until each interval lies at 0 or on another one, and be built in order of offsets. So the
next interval lies at its lowest free offset, no lower than the previous one, and lower than the end of any other
remaining interval, which could otherwise lie below it. Time is cut into sections where intervals start. The least
height of a section is its current height plus the sizes still to be placed in it. If it exceeds the wanted height, the
last choice was wrong.

If a packing exists, few choices are wrong in general, and it is found in hardly more steps than there are intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from runtime.buffers.heap.arena import Interval
from runtime.buffers.types import alignment_of
from spmd.literal import NDArray


class Preference(Enum):
    """Order among intervals that could lie equally low."""

    TIGHTEST = "tightest first"  # the one whose section has least room left
    LARGEST = "largest area first"


@dataclass(frozen=True, slots=True)
class _Choice:
    """Interval ``index`` at ``offset``; ``floor``: the previous heights of its sections."""

    index: int
    offset: int
    floor: NDArray


def search_height(
    intervals: Sequence[Interval], height: int, preference: Preference, most_steps: int
) -> tuple[int, ...] | None:
    """Return offsets within ``height`` bytes; None if none were found in ``most_steps`` steps."""
    return _Search(intervals, height, preference).run(most_steps)


class _Search:
    def __init__(self, intervals: Sequence[Interval], height: int, preference: Preference) -> None:
        self._height, self._preference = height, preference
        self._sizes = [one.size for one in intervals]
        self._alignments = [alignment_of(one.size) for one in intervals]
        self._offsets = [0] * len(intervals)
        self._left = {i: None for i, one in enumerate(intervals) if one.size}
        starts = sorted({one.start for one in intervals})
        numbers = {start: n for n, start in enumerate(starts)}
        self._sections = [
            slice(numbers[one.start], bisect_right(starts, one.end)) for one in intervals
        ]
        firsts = np.array([one.start for one in self._sections], np.int64)
        stops = np.array([one.stop for one in self._sections], np.int64)
        self._concurrent = [
            np.flatnonzero((firsts < own.stop) & (stops > own.start)).tolist()
            for own in self._sections
        ]
        #: Lowest possible offset of each remaining interval.
        self._lowest = [0] * len(intervals)
        self._floor = np.zeros(len(starts), np.int64)
        #: Lower bound of the height of each section: bytes that are placed or lost, and those of remaining intervals.
        self._least_height = np.zeros(len(starts), np.int64)
        for sections, size in zip(self._sections, self._sizes, strict=True):
            self._least_height[sections] += size

    def run(self, most_steps: int) -> tuple[int, ...] | None:
        made: list[_Choice] = []
        open_choices = [self._choices(0)]
        for _ in range(most_steps):
            if not self._left:
                return tuple(self._offsets)
            choice = next(open_choices[-1], None)
            if choice is None:
                open_choices.pop()
                if not made:
                    return None
                self._undo(made.pop())
                continue
            self._make(choice)
            if self._least_height[self._sections[choice.index]].max() <= self._height:
                made.append(choice)
                open_choices.append(self._choices(choice.offset))
            else:
                self._undo(choice)
        return None

    def _choices(self, lowest: int) -> Iterator[_Choice]:
        """Yield the intervals that may be placed next, at ``lowest`` or above; equal intervals once."""
        offsets = self._lowest.copy()
        first_end = min((offsets[i] + self._sizes[i] for i in self._left), default=self._height)
        candidates = [i for i in self._left if lowest <= offsets[i] < first_end]
        seen = set()
        for i in sorted(candidates, key=lambda i: (offsets[i], *self._rank(i), i)):
            sections = self._sections[i]
            key = (offsets[i], self._sizes[i], sections.start, sections.stop)
            if key not in seen:
                seen.add(key)
                yield _Choice(i, offsets[i], self._floor[sections].copy())

    def _rank(self, i: int) -> tuple[int, int]:
        sections = self._sections[i]
        area = self._sizes[i] * (sections.stop - sections.start)
        if self._preference is Preference.LARGEST:
            return (-area, 0)
        return (-int(self._least_height[sections].max()), -area)

    def _make(self, choice: _Choice) -> None:
        """Place the interval. Bytes left unused below it are added to the least height of its sections."""
        sections, size = self._sections[choice.index], self._sizes[choice.index]
        self._least_height[sections] += choice.offset - choice.floor
        self._floor[sections] = choice.offset + size
        self._offsets[choice.index] = choice.offset
        del self._left[choice.index]
        self._lower(choice.index)

    def _undo(self, choice: _Choice) -> None:
        sections = self._sections[choice.index]
        self._least_height[sections] -= choice.offset - choice.floor
        self._floor[sections] = choice.floor
        self._left[choice.index] = None
        self._lower(choice.index)

    def _lower(self, changed: int) -> None:
        """Update the lowest offsets of remaining intervals that overlap ``changed`` in time."""
        for i in self._concurrent[changed]:
            if i in self._left:
                floor, alignment = int(self._floor[self._sections[i]].max()), self._alignments[i]
                self._lowest[i] = -(-floor // alignment) * alignment
