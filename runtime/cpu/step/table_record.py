"""Words of a device's table before its rows, and of a log of stamps: what native code and Python both read."""

from __future__ import annotations

from enum import IntEnum

#: How many rows, address of the position's THUNK word (STARTED follows it), the row to go on with, outcome of a
#: collective that failed, what the device does (State), collectives in flight, address of the list of their headers,
#: when they were looked at last (nanoseconds of CLOCK_MONOTONIC), address of the word in which shares are offered to
#: other threads (0: there are none), address of the log of stamps (0: none are taken).
ROWS, POSITION, ROW, OUTCOME, STATE, IN_FLIGHT, FLIGHT_LIST, LOOKED, OFFER, LOG = range(10)
HEADER_WORDS = 10

#: Words of a log of stamps: how many, room for how many; then of each its mark, and nanoseconds of the clock that
#: time.perf_counter_ns reads.
LOG_WORDS, STAMP_WORDS = 2, 2


class State(IntEnum):
    """State of a table's device, for workers that run several devices by turns (worker_ir.py)."""

    RUNNING = 0
    FINISHED = 1
    IN_PYTHON = 2  # waits in a way that Python alone can ask about
