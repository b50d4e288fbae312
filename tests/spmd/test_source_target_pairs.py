"""Pairs in lines against the same pairs one by one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.device import IotaTile
from spmd.errors import UnsupportedError
from spmd.limits import MAX_DEVICES
from spmd.source_target_pairs import (
    DigitPermutation,
    LinePairs,
    ListedPairs,
    Mirror,
    Move,
    Rotation,
    Shift,
)


@st.composite
def digit_permutations(draw: st.DrawFn) -> tuple[int, DigitPermutation]:
    sizes = tuple(draw(st.lists(st.sampled_from([2, 2, 3]), min_size=1, max_size=4)))
    of_size = {size: [i for i, other in enumerate(sizes) if other == size] for size in set(sizes)}
    shuffled = {size: draw(st.permutations(where)) for size, where in of_size.items()}
    taken = tuple(shuffled[size][of_size[size].index(i)] for i, size in enumerate(sizes))
    return math.prod(sizes), DigitPermutation(sizes, taken)


@st.composite
def line_pairs(draw: st.DrawFn) -> LinePairs:
    """Lines along some of the digits of the device number, in any order."""
    if draw(st.booleans()):
        count, move = draw(digit_permutations())
        return LinePairs(IotaTile.of((1, count)), move)
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=3))
    perm = draw(st.permutations(range(len(sizes))))
    apart = draw(st.integers(0, len(sizes)))
    lines = math.prod(sizes[d] for d in perm[:apart])
    tile = IotaTile((lines, math.prod(sizes) // lines), tuple(sizes), tuple(perm))
    distance = st.integers(-4, 4)
    return LinePairs(
        tile, draw(st.one_of(distance.map(Shift), distance.map(Rotation), st.just(Mirror())))
    )


@given(line_pairs())
def test_what_the_form_tells_is_true_of_the_pairs(pairs: LinePairs) -> None:
    listed = ListedPairs(pairs.expand())
    assert len(pairs) == len(listed)
    assert pairs.moved == listed.moved
    assert (pairs.smallest, pairs.largest) == (listed.smallest, listed.largest)
    assert pairs.repeats() == listed.repeats()
    assert pairs.part(1, 3) == listed.part(1, 3)


@given(line_pairs(), line_pairs())
def test_equal_are_equal_pairs_in_any_form(one: LinePairs, other: LinePairs) -> None:
    same = one.expand() == other.expand()
    assert (one == other) is same
    assert (one == ListedPairs(other.expand())) is same
    for pairs in (one, other):
        listed = ListedPairs(pairs.expand())
        assert pairs == listed
        assert hash(pairs) == hash(listed)


def test_one_pattern_may_have_several_forms() -> None:
    pair = IotaTile.of((4, 2))
    assert LinePairs(pair, Rotation(1)) == LinePairs(pair, Mirror())
    assert LinePairs(pair, Shift(1)) != LinePairs(pair, Rotation(1))


@pytest.mark.parametrize(
    ("lines", "move", "expected"),
    [
        (
            IotaTile.of((2, 4)),
            Shift(1),
            ((0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)),
        ),
        (IotaTile((4, 2), (2, 4), (1, 0)), Shift(-1), ((4, 0), (5, 1), (6, 2), (7, 3))),
        (IotaTile.of((2, 2)), Rotation(-1), ((0, 1), (1, 0), (2, 3), (3, 2))),
        (IotaTile.of((1, 4)), Mirror(), ((0, 3), (1, 2), (2, 1), (3, 0))),
        (
            IotaTile.of((1, 4)),
            DigitPermutation((2, 2), (1, 0)),
            ((0, 0), (2, 1), (1, 2), (3, 3)),
        ),
        (IotaTile.of((2, 2)), Shift(2), ()),
    ],
)
def test_expand(lines: IotaTile, move: Move, expected: tuple[tuple[int, int], ...]) -> None:
    assert LinePairs(lines, move).expand() == expected


def test_a_large_pattern_is_told_without_writing_it_out() -> None:
    many = IotaTile((1 << 20, 1 << 10), (1 << 10, 1 << 20), (1, 0))
    pairs = LinePairs(many, Rotation(3))
    assert len(pairs) == pairs.moved == 1 << 30
    assert pairs.largest == (1 << 30) - 1
    assert pairs.part(len(pairs) - 1, len(pairs)) == (((1 << 30) - 1, (3 << 20) - 1),)
    assert pairs == LinePairs(many, Rotation(3))
    assert pairs in {pairs}
    assert len(pairs) > MAX_DEVICES
    with pytest.raises(UnsupportedError, match="too many"):
        pairs.expand()


def test_digits_change_places_with_digits_of_their_size() -> None:
    with pytest.raises(ValueError, match="cannot change places"):
        DigitPermutation((2, 3), (1, 0))
    with pytest.raises(ValueError, match="cannot change places"):
        DigitPermutation((2, 2), (0, 0))


def test_listed_pairs_may_be_anything() -> None:
    """Nobody has checked them yet."""
    pairs = ListedPairs(((0, 1), (0, 2), (-3, 10**30)))
    assert (pairs.smallest, pairs.largest, pairs.repeats()) == (-3, 10**30, (2, 1))
    assert pairs == ListedPairs(pairs.pairs)
    assert hash(pairs) == hash(ListedPairs(pairs.pairs))
    assert ListedPairs() == LinePairs(IotaTile.of((2, 2)), Shift(2))
