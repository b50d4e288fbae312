"""Stretches of time against counting them second by second."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.cost.intervals import Interval, common, covered, crowded, shared

SECONDS = 20


def counts(intervals: list[Interval]) -> list[int]:
    """Return for each second the number of intervals that contain it."""
    return [sum(start <= at < end for start, end in intervals) for at in range(SECONDS)]


@pytest.mark.parametrize("seed", range(30))
def test_as_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, SECONDS, (int(rng.integers(0, 7)), 2))
    others = [(float(min(pair)), float(max(pair))) for pair in edges]
    one = (float(rng.integers(0, 8)), float(rng.integers(8, SECONDS)))
    inside = counts([one])
    for least in (1, 2, 3):
        wanted = sum(
            mine and theirs >= least for mine, theirs in zip(inside, counts(others), strict=True)
        )
        assert crowded(one, others, least) == wanted
        if least == 1:
            assert covered(one, others) == wanted
    for other in others:
        assert common(one, other) == covered(one, [other])


@pytest.mark.parametrize("seed", range(30))
def test_two_rows_that_each_follow_one_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some, others = (row(rng) for _ in range(2))
    both = zip(counts(some), counts(others), strict=True)
    assert shared(some, others) == sum(mine and theirs for mine, theirs in both)


def row(rng: np.random.Generator) -> list[Interval]:
    """Some of them empty."""
    edges = [float(at) for at in np.sort(rng.integers(0, SECONDS, 2 * int(rng.integers(0, 5))))]
    return list(zip(edges[::2], edges[1::2], strict=True))
