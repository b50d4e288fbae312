"""Backtracking search, bottom up, for a packing of at most a given height.

Any packing can be pushed down until each interval begins at 0 or at the end of another interval, and can be built in
the order of offsets. Therefore the next interval is placed at its lowest free offset, which is no lower than that of
the previous interval, and lower than the end of any other remaining interval, which could otherwise be placed below.
Time is divided into sections at the starts of intervals. The least height of a section is its present height plus the
sizes of its remaining intervals. If it exceeds the wanted height, the last choice was wrong.

If a packing exists, few choices are wrong in general, and the search finds it in little more steps than intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import Enum

from runtime.buffers.heap.arena import Interval
from runtime.buffers.types import alignment_of
from spmd.lazy_dataclass import dataclass


class Preference(Enum):
    """Order in which intervals with the same lowest offset are tried."""

    TIGHTEST = "tightest first"  # the interval whose section has the least room left
    LARGEST = "largest area first"


@dataclass(frozen=True, slots=True)
class _Choice:
    """Placement of interval ``index`` at ``offset``, with the data that are needed to undo it.

    floor: previous heights of the interval's sections. raised: remaining intervals whose lowest offsets the placement
    raises, with their previous lowest offsets; ``_make`` fills the list.
    """

    index: int
    offset: int
    floor: list[int]
    raised: list[tuple[int, int]] = field(default_factory=list)


def search_height(
    intervals: Sequence[Interval], height: int, preference: Preference, most_steps: int
) -> tuple[int, ...] | None:
    """Return the offset of each interval in a packing of at most ``height`` bytes.

    Returns None if the search finds none in ``most_steps`` steps.
    """
    return _Search(intervals, height, preference).run(most_steps)


class _Search:
    """State of a search: the placed and the remaining intervals, and the heights of all sections."""

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
        self._concurrent = [
            [i for i, each in enumerate(self._sections) if _overlap(each, own)]
            for own in self._sections
        ]
        #: Lowest possible offset of each remaining interval.
        self._lowest = [0] * len(intervals)
        self._floor = [0] * len(starts)
        #: Lower bound of the height of each section: bytes that are placed or lost, and bytes of remaining intervals.
        self._least_height = [0] * len(starts)
        for sections, size in zip(self._sections, self._sizes, strict=True):
            for n in range(sections.start, sections.stop):
                self._least_height[n] += size

    def run(self, most_steps: int) -> tuple[int, ...] | None:
        """Search for at most ``most_steps`` steps. Returns the offsets, or None if none were found."""
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
            if max(self._least_height[self._sections[choice.index]]) <= self._height:
                made.append(choice)
                open_choices.append(self._choices(choice.offset))
            else:
                self._undo(choice)
        return None

    def _choices(self, lowest: int) -> Iterator[_Choice]:
        """Yield the intervals that may be placed next, at ``lowest`` or above. Equal intervals are yielded once."""
        offsets = self._lowest.copy()
        first_end = min((offsets[i] + self._sizes[i] for i in self._left), default=self._height)
        candidates = [i for i in self._left if lowest <= offsets[i] < first_end]
        seen = set()
        for i in sorted(candidates, key=lambda i: (offsets[i], *self._rank(i), i)):
            sections = self._sections[i]
            key = (offsets[i], self._sizes[i], sections.start, sections.stop)
            if key not in seen:
                seen.add(key)
                yield _Choice(i, offsets[i], self._floor[sections])

    def _rank(self, i: int) -> tuple[int, int]:
        """Return the sort key of interval ``i`` by the preference; lower ranks are tried first."""
        sections = self._sections[i]
        area = self._sizes[i] * (sections.stop - sections.start)
        if self._preference is Preference.LARGEST:
            return (-area, 0)
        return (-max(self._least_height[sections]), -area)

    def _make(self, choice: _Choice) -> None:
        """Place the interval of ``choice``. Unused bytes below it are added to the least height of its sections."""
        sections, end = self._sections[choice.index], choice.offset + self._sizes[choice.index]
        for n in range(sections.start, sections.stop):
            self._least_height[n] += choice.offset - self._floor[n]
            self._floor[n] = end
        self._offsets[choice.index] = choice.offset
        del self._left[choice.index]
        # ``end`` is the highest in these sections, so it is a lower bound for all intervals that overlap them.
        for i in self._concurrent[choice.index]:
            if i in self._left and self._lowest[i] < end:
                choice.raised.append((i, self._lowest[i]))
                alignment = self._alignments[i]
                self._lowest[i] = -(-end // alignment) * alignment

    def _undo(self, choice: _Choice) -> None:
        """Revert ``_make``."""
        sections = self._sections[choice.index]
        for n, floor in zip(range(sections.start, sections.stop), choice.floor, strict=True):
            self._least_height[n] -= choice.offset - floor
            self._floor[n] = floor
        self._left[choice.index] = None
        for i, lowest in choice.raised:
            self._lowest[i] = lowest


def _overlap(a: slice, b: slice) -> bool:
    """Return whether the ranges of sections share a section."""
    return bool(a.start < b.stop and a.stop > b.start)
