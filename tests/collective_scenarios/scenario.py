"""Shared parts of the scenarios: their table, the groups that they try, and how results are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collectives.communicator.interface import Communicator

Scenario = Callable[[Communicator], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def groupings(size: int) -> list[list[tuple[int, ...]]]:
    """Partitions of the ranks into groups: all, halves, interleaved, reversed, unequal, each alone."""
    ranks = tuple(range(size))
    forms = [
        [ranks],
        [ranks[: size // 2], ranks[size // 2 :]],
        [ranks[0::2], ranks[1::2]],
        [ranks[::-1]],
        [ranks[:1], ranks[1:]],
        [(rank,) for rank in ranks],
    ]
    return [[group for group in form if group] for form in forms]


def own(groups: list[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    return next(group for group in groups if rank in group)


def assert_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bit for bit; the dtype and the shape too."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == np.ascontiguousarray(want).tobytes(), f"got {got}, want {want}"
