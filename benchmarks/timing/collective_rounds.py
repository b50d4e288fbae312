"""Counts of timed calls by size of a collective: equal in every process, since all must make as many calls."""

from __future__ import annotations

#: About how long one round takes.
ROUND_SECONDS = 0.01
#: Bytes from which a round takes much longer, so that there are fewer trips of a loop and fewer rounds.
LARGE = 4 << 20
TRIPS, TRIPS_OF_LARGE = 20, 4
ROUNDS_OF_LARGE = 4


def calls_in_round(size: int) -> int:
    return max(1, min(100, int(ROUND_SECONDS / (size / 2e9 + 1e-4))))


def trips(size: int) -> int:
    return TRIPS if size < LARGE else TRIPS_OF_LARGE


def rounds_of(size: int, rounds: int) -> int:
    """Return how many of the wanted ``rounds`` are run on arrays of ``size`` bytes: few where these are large."""
    return rounds if size < LARGE else min(ROUNDS_OF_LARGE, rounds)
