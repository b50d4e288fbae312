"""Clock offsets between ranks: within what is claimed, whatever the delays."""

from __future__ import annotations

import json
import random

import pytest

from collectives.communicator.loopback import LoopbackWorld
from launch.report.clock import ClockOffset, clock_offsets
from tests.loopback_ranks import run_on_threads


class SkewedClock:
    """A rank that hears the others after delays, on a clock of its own: stands in for three machines."""

    def __init__(self, ahead: list[int], seed: int) -> None:
        rng = random.Random(seed)
        self.exchanges = []
        at = 0
        for _ in range(16):
            sent = [at + rng.randrange(50_000) for _ in ahead]
            heard = [max(sent) + rng.randrange(2_000, 60_000) for _ in ahead]
            at = max(heard)
            self.exchanges.append((sent, heard))
        self.ahead = ahead

    def of(self, rank: int) -> list[tuple[int, int]]:
        own = self.ahead[rank]
        return [(sent[rank] + own, heard[rank] + own) for sent, heard in self.exchanges]

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        if data == b"clock":
            return [data] * len(self.ahead)
        return [json.dumps(self.of(rank)).encode() for rank in range(len(self.ahead))]


@pytest.mark.parametrize("seed", range(20))
def test_offsets_are_as_close_as_they_say(seed: int) -> None:
    ahead = [0, 7_000_000, -123_456_789]
    found = clock_offsets(SkewedClock(ahead, seed))  # type: ignore[arg-type]
    for true, offset in zip(ahead, found, strict=True):
        assert abs(offset.ahead - true) <= offset.uncertainty < 60_000
    assert found[0] == ClockOffset(0, 0)


def test_one_clock_is_not_ahead_of_itself() -> None:
    found = run_on_threads(LoopbackWorld(2), clock_offsets)
    assert found[0] == found[1]
    for offset in found[0]:
        assert abs(offset.ahead) <= offset.uncertainty
