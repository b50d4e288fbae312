"""Tests of the overlaps of a collective's arrays, beside the comparison of every pair."""

from __future__ import annotations

import random

import numpy as np

from collectives.communicator.actions.shared_buffers import Buffers, Overlap, overlap, starts_at


def test_overlaps_are_those_of_all_pairs() -> None:
    memory = np.zeros(96, np.uint8)
    choice = random.Random(7)

    def arrays() -> tuple[np.ndarray, ...]:
        starts = [choice.randrange(96) for _ in range(choice.randrange(6))]
        return tuple(memory[start : start + choice.choice((0, 1, 8, 24))] for start in starts)

    found = 0
    for _ in range(1500):
        buffers = Buffers(arrays(), arrays())
        pairs = [
            Overlap(i, k, starts_at(one) == starts_at(other))
            for i, one in enumerate(buffers.operands)
            for k, other in enumerate(buffers.results)
            if overlap(one, other)
        ]
        assert list(buffers.overlaps) == pairs
        found += len(pairs)
    assert found > 500
