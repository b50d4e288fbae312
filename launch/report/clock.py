"""Offsets between the ranks' clocks, from the times of messages among them.

No rank leaves a barrier before all have come, so that what rank r's clock showed when it came cannot lie after what
rank 0's showed when it left, nor the other way round. A barrier bounds the difference of two clocks from both sides,
and many bound it closely: to what the quickest message takes there and back, if in each direction some sender was the
last to come, for which ranks take turns. Within these bounds, a typical message of one direction is set against a
typical one of the other: the quickest of two thousand is as quick as it is by chance, and seldom so in both directions.
That is right where messages take as long in both directions.

Clocks also run at rates that differ by some parts in a million. So the difference is measured before and after a run,
and in between it is on the line through both.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from collectives.communicator.interface import Communicator
from spmd.lazy_dataclass import dataclass

#: Number of rounds in which the ranks of one clock arrive last, and largest number of rounds of all clocks.
ROUNDS, MOST_ROUNDS = 1000, 4000
#: Largest delay in nanoseconds of the ranks that must arrive last.
_SPIN_LIMIT = 2_000_000


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Nanoseconds that a rank's clock is ahead of rank 0's, and how wrong that may be; when, on the rank's clock."""

    ahead: int
    uncertainty: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class ClockLine:
    """Mapping of a rank's clock to rank 0's, from offsets before and after the run."""

    before: ClockOffset
    after: ClockOffset

    @property
    def uncertainty(self) -> int:
        return max(self.before.uncertainty, self.after.uncertainty)

    def on_first(self, time: int) -> int:
        """Convert ``time`` of the rank's clock to the first rank's clock."""
        spent = self.after.at - self.before.at
        drift = (self.after.ahead - self.before.ahead) / spent if spent > 0 else 0.0
        return time - self.before.ahead - round(drift * (time - self.before.at))


ONE_CLOCK = ClockLine(ClockOffset(0, 0), ClockOffset(0, 0))


def clock_name() -> str:
    """Return the name of this process's clock: all processes of one kernel, in one time namespace, read the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"


def clock_offsets(
    world: Communicator, clock: str | None = None, rounds: int = ROUNDS
) -> list[ClockOffset]:
    """Return the offset of each rank, on every rank; all call it. ``clock``: the name of the clock, by default
    ``clock_name()``.
    """
    clocks = world.all_gather_bytes((clock or clock_name()).encode())
    names = list(dict.fromkeys(clocks))
    turn = names.index(clocks[world.rank])
    barriers: list[tuple[int, int]] = []
    for number in range(min(rounds * len(names), MOST_ROUNDS) if len(names) > 1 else 1):
        if barriers and number % len(names) == turn:
            came, left = barriers[-1]
            _let_pass(min(left - came, _SPIN_LIMIT))
        came = time.perf_counter_ns()
        world.barrier()
        barriers.append((came, time.perf_counter_ns()))
    gathered = [json.loads(data) for data in world.all_gather_bytes(json.dumps(barriers).encode())]
    by_clock = [
        _passages([own for own, its in zip(gathered, clocks, strict=True) if its == name])
        for name in names
    ]
    offsets = {
        name: _offset(by_clock[0], own, len(names), name == names[0])
        for name, own in zip(names, by_clock, strict=True)
    }
    return [offsets[name] for name in clocks]


def _let_pass(nanoseconds: int) -> None:
    """Spin for so long: a thread that sleeps may wake up late."""
    end = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < end:
        pass


def _passages(gathered: Sequence[Sequence[Sequence[int]]]) -> list[tuple[int, int]]:
    """Return for each round when the last rank with one clock arrived and when the first one left."""
    return [
        (max(came for came, _ in each), min(left for _, left in each))
        for each in zip(*gathered, strict=True)
    ]


def _offset(
    first: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]], clocks: int, same: bool
) -> ClockOffset:
    """Return the offset of ``other`` to ``first``: the passages of two clocks by round, out of ``clocks`` clocks."""
    middle = (other[0][0] + other[-1][1]) // 2
    if same:
        return ClockOffset(0, 0, middle)
    rounds = list(zip(first, other, strict=True))
    lows = sorted((came - left for (_, left), (came, _) in rounds), reverse=True)
    highs = sorted(left - came for (came, _), (_, left) in rounds)
    low, high = lows[0], highs[0]
    typical = len(rounds) // (2 * clocks)  # of the rounds that waited for the other clock
    ahead = min(max((lows[typical] + highs[typical]) // 2, low), high)
    return ClockOffset(ahead, max(ahead - low, high - ahead, 0) + 1, middle)
