"""How far the ranks' clocks are apart, from what the ranks have told each other and when.

A message that rank r stamped t_r on its clock cannot have reached rank 0 before it was sent, nor the other way round.
So an exchange in which everybody notes when it sends and when all have come bounds the difference of two clocks from
both sides, and many exchanges bound it closely. No delay has to be alike in both directions.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from collectives.communicator.interface import Communicator

ROUNDS = 16


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Nanoseconds that a rank's clock is ahead of rank 0's, and how wrong that may be."""

    ahead: int
    uncertainty: int


def clock_offsets(world: Communicator, rounds: int = ROUNDS) -> list[ClockOffset]:
    """One for each rank, on every rank; all call it."""
    exchanges = []
    for _ in range(rounds):
        sent = time.perf_counter_ns()
        world.all_gather_bytes(b"clock")
        exchanges.append((sent, time.perf_counter_ns()))
    told = [json.loads(data) for data in world.all_gather_bytes(json.dumps(exchanges).encode())]
    return [_offset(told[0], own) if rank else ClockOffset(0, 0) for rank, own in enumerate(told)]


def _offset(first: list[list[int]], other: list[list[int]]) -> ClockOffset:
    """``first`` and ``other``: when each sent, and when it had heard from all, by round, each on its own clock."""
    least = max(sent - heard for (_, heard), (sent, _) in zip(first, other, strict=True))
    most = min(heard - sent for (sent, _), (_, heard) in zip(first, other, strict=True))
    return ClockOffset((least + most) // 2, max(most - least, 0) // 2 + 1)
