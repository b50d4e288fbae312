"""Clock offsets between ranks: within what is claimed, whatever the delays."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from collectives.communicator.loopback.communicator import LoopbackCommunicator, LoopbackWorld
from launch.report.clock import ROUNDS, ClockLine, ClockOffset, clock_offsets
from tests.loopback_ranks import run_on_threads


class SkewedClocks:
    """Ranks that come to a barrier when they like and leave it after delays, on clocks of their own."""

    def __init__(self, ahead: list[int], delays: Sequence[int], seed: int) -> None:
        """``delays``: the least and the most that news takes to each rank, nanoseconds."""
        rng = random.Random(seed)
        self.passages = []
        at = 0
        for number in range(ROUNDS * len(ahead)):
            came = [at + rng.randrange(50_000) for _ in ahead]
            came[number % len(ahead)] += 100_000  # whose turn it is
            left = [max(came) + rng.randrange(*delays) for _ in ahead]
            at = max(left)
            self.passages.append((came, left))
        self.ahead = ahead
        self.rank = 0

    def of(self, rank: int) -> list[tuple[int, int]]:
        own = self.ahead[rank]
        return [(came[rank] + own, left[rank] + own) for came, left in self.passages]

    def barrier(self) -> None: ...

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        ranks = range(len(self.ahead))
        if data == b"own":
            return [str(rank).encode() for rank in ranks]
        return [json.dumps(self.of(rank)).encode() for rank in ranks]


@pytest.mark.parametrize("seed", range(20))
def test_offsets_are_as_close_as_they_say(seed: int) -> None:
    ahead = [0, 7_000_000, -123_456_789]
    world = SkewedClocks(ahead, (2_000, 60_000), seed)
    found = clock_offsets(world, "own")  # type: ignore[arg-type]
    for true, offset in zip(ahead, found, strict=True):
        assert abs(offset.ahead - true) <= offset.uncertainty < 60_000
    assert (found[0].ahead, found[0].uncertainty) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_over_a_link_of_200_us_each_way_they_are_within_20(seed: int) -> None:
    """The quickest messages take as long in both directions.

    The stated uncertainty is the time of a message.
    """
    ahead = [0, 5_000_000]
    world = SkewedClocks(ahead, (200_000, 500_000), seed)
    found = clock_offsets(world, "own")[1]  # type: ignore[arg-type]
    assert abs(found.ahead - 5_000_000) < 20_000
    assert 180_000 < found.uncertainty < 240_000


def test_a_clock_that_runs_fast_is_told_between_the_ends() -> None:
    """The clock is fast by 20 parts in a million over ten seconds, which are 200 us."""
    line = ClockLine(ClockOffset(1_000, 5, 0), ClockOffset(201_000, 7, 10**10))
    assert line.on_first(0) == -1_000
    assert line.on_first(5 * 10**9) == 5 * 10**9 - 101_000
    assert line.on_first(10**10) == 10**10 - 201_000
    assert line.uncertainty == 7


def test_ranks_that_read_one_clock_are_not_ahead_of_each_other() -> None:
    for offsets in run_on_threads(LoopbackWorld(2), clock_offsets):
        assert [(one.ahead, one.uncertainty) for one in offsets] == [(0, 0), (0, 0)]


def test_one_clock_under_two_names_is_not_ahead_of_itself() -> None:
    def named(world: LoopbackCommunicator) -> list[ClockOffset]:
        return clock_offsets(world, f"clock {world.rank}", rounds=50)

    found = run_on_threads(LoopbackWorld(2), named)
    assert found[0] == found[1]
    for offset in found[0]:
        assert abs(offset.ahead) <= offset.uncertainty
