"""Searched packings: valid and no higher than asked, found where greedy ones are too high, and not where there are none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from runtime.buffers.heap.arena import Interval, lower_bound
from runtime.buffers.heap.heap import pack
from runtime.buffers.heap.height_search import Preference, search_height
from runtime.buffers.types import alignment_of
from tests.runtime.buffers.heap.test_heap import assert_apart, intervals

#: Bytes of rectangles that are cut to pieces.
HEIGHT = 4096

BOTH = pytest.mark.parametrize("preference", Preference)


@BOTH
@given(items=intervals)
def test_what_is_found_is_a_packing(preference: Preference, items: list[Interval]) -> None:
    high = sum(one.size + 63 for one in items)
    for height in (lower_bound(items), high):
        offsets = search_height(items, height, preference, 6 * len(items) + 1)
        assert height < high or offsets is not None
        if offsets is not None:
            assert_apart(items, offsets)
            assert all(o % alignment_of(i.size) == 0 for i, o in zip(items, offsets, strict=True))
            assert (
                max((o + i.size for i, o in zip(items, offsets, strict=True)), default=0) <= height
            )


@BOTH
def test_nothing_is_found_below_the_bound(preference: Preference) -> None:
    items = [Interval(0, 3, 64), Interval(2, 5, 128), Interval(4, 7, 64)]
    assert search_height(items, 192, preference, 100) is not None
    assert search_height(items, 191, preference, 100) is None


def cut(generator: random.Random, pieces: int) -> list[Interval]:
    """A rectangle of HEIGHT bytes and 64 positions, cut into pieces: they fit into it without a gap."""
    found = [(0, 64, 0, 64)]
    while len(found) < pieces:
        start, end, low, high = found.pop(generator.randrange(len(found)))
        across_time = generator.random() < 0.5
        if end - start > 1 and (across_time or high - low < 2):
            at = generator.randrange(start + 1, end)
            found += [(start, at, low, high), (at, end, low, high)]
        elif high - low > 1:
            at = generator.randrange(low + 1, high)
            found += [(start, end, low, at), (start, end, at, high)]
        else:
            found.append((start, end, low, high))
    generator.shuffle(found)
    return [
        Interval(start, end - 1, HEIGHT // 64 * (high - low)) for start, end, low, high in found
    ]


def test_choices_are_taken_back() -> None:
    """As many steps as intervals, and one to see that none is left, do not always do."""
    generator = random.Random(7)
    late = []
    for pieces in range(10, 40, 2):
        items = cut(generator, pieces)
        offsets = search_height(items, HEIGHT, Preference.TIGHTEST, 20 * pieces)
        if offsets is not None:
            assert_apart(items, offsets)
            at_once = search_height(items, HEIGHT, Preference.TIGHTEST, pieces + 1)
            late.append(at_once is None)
    assert 1 <= sum(late) < len(late)


def test_rectangles_cut_to_pieces_are_put_together_again() -> None:
    """No byte may stay free at any time, which is harder than any program: greedy packings are up to 5% too high."""
    generator = random.Random(7)
    packings = [pack(cut(generator, pieces)) for pieces in range(10, 60, 2)]
    assert max(packing.size for packing in packings) <= 1.02 * HEIGHT
    assert sum(packing.size == HEIGHT for packing in packings) >= 20
    assert any(packing.algorithm.startswith("search, ") for packing in packings)
    assert any(packing.algorithm.endswith(" promotions") for packing in packings)
