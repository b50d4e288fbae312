"""How often collectives of a size are timed: the same in every process, which must all make as many calls."""

from __future__ import annotations

#: About, of one round.
ROUND_SECONDS = 0.01
#: Bytes from which a round takes much longer: fewer trips of a loop, and fewer rounds.
LARGE = 4 << 20
TRIPS, TRIPS_OF_LARGE = 20, 4
ROUNDS_OF_LARGE = 4


def calls_in_round(size: int) -> int:
    return max(1, min(100, int(ROUND_SECONDS / (size / 2e9 + 1e-4))))


def trips(size: int) -> int:
    return TRIPS if size < LARGE else TRIPS_OF_LARGE


def rounds_of(size: int, rounds: int) -> int:
    """Of ``rounds`` that were asked for."""
    return rounds if size < LARGE else min(ROUNDS_OF_LARGE, rounds)
