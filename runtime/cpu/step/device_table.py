"""Table of a device: its segment in memory, as native code reads it, and the position at which the device is."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from collectives.communicator.liveness.status_table import THUNK
from runtime.cpu.step.segment import Segment, SegmentRow
from runtime.program.argument_record import (
    Address,
    Record,
    Word,
    field_names,
    record,
    word_count,
    word_index,
)


@record
class TableRecord(Record):
    """Beginning of a device's table. The rows follow it.

    ``rows`` is the number of rows and ``row`` the next row to run. ``position`` is the address of the position's THUNK
    word, which the STARTED word follows. ``state`` is the device's State, and ``status`` the RunStatus of a failed
    collective. ``in_flight`` is the number of collectives in flight, ``in_flight_list`` the address of the list of
    their headers, and ``looked`` the time of their last poll in nanoseconds of CLOCK_MONOTONIC. ``open_share`` is the
    address of the word that publishes shares to other threads, or 0 without helpers. ``log`` is the address of the
    timestamp log, or 0 if no timeline is recorded.
    """

    rows: Word
    position: Address
    row: Word
    status: Word
    state: Word
    in_flight: Word
    in_flight_list: Address
    looked: Word
    open_share: Address
    log: Address


@record
class LogRecord(Record):
    """Beginning of a timestamp log: the number of timestamps in it, and the number for which it has room."""

    count: Word
    room: Word


@record
class TimestampRecord(Record):
    """Timestamp: the mark of the event, and the time in nanoseconds of the clock of time.perf_counter_ns."""

    mark: Word
    time: Word


ROWS, POSITION, ROW, STATUS, STATE, IN_FLIGHT, IN_FLIGHT_LIST, LOOKED, OPEN_SHARE, LOG = (
    word_index(TableRecord, name) for name in field_names(TableRecord)
)


HEADER_WORDS = word_count(TableRecord)

LOG_WORDS, TIMESTAMP_WORDS = word_count(LogRecord), word_count(TimestampRecord)


class State(IntEnum):
    """State of a device's table, for workers that run several tables in turn (worker_ir.py)."""

    RUNNING = 0
    FINISHED = 1
    IN_PYTHON = 2  # The device waits for a collective that Python polls.


class Table:
    """Linked rows of a segment whose collectives are connected, for the device of rank ``rank``.

    Only one thread at a time may run a table. Python accesses the table's memory only between native calls.
    """

    def __init__(self, segment: Segment, position: memoryview, rank: int = 0, log: int = 0) -> None:
        """Lay out the rows of ``segment`` in memory.

        ``position`` is the device's position, into which rows write the numbers of their thunks. ``log`` is the address
        of the timestamp log, or 0.
        """
        self.rank = rank
        self.rows = segment.rows
        row_fields = [word for row in segment.rows for word in row.fields]
        # A collective is in flight at most once at a time, so the list needs one entry for each.
        self._collectives = {row.fields[1]: row for row in segment.rows if row.is_start}
        self._data = np.zeros(HEADER_WORDS + len(row_fields) + len(self._collectives), np.int64)
        self._data[HEADER_WORDS : HEADER_WORDS + len(row_fields)] = row_fields
        position_fields = np.frombuffer(position, np.int64)
        self.address = int(self._data.ctypes.data)
        self._view = self._data.data
        self._view[ROWS] = len(segment.rows)
        self._view[POSITION] = position_fields[THUNK:].ctypes.data
        self._view[IN_FLIGHT_LIST] = self.address + 8 * (HEADER_WORDS + len(row_fields))
        self._view[LOG] = log
        self._alive = (segment.alive, position_fields)

    def publish_at(self, address: int) -> None:
        """Set the address of the word in which the device publishes shares to other threads."""
        self._view[OPEN_SHARE] = address

    @property
    def has_shares(self) -> bool:
        """Return whether any row is a share."""
        return any(row.is_share for row in self.rows)

    @property
    def row(self) -> SegmentRow:
        """Return the next row to run. The table must not be finished."""
        return self.rows[self._view[ROW]]

    def pass_row(self) -> None:
        """Advance to the next row after Python has run the current one."""
        self._view[ROW] += 1

    @property
    def status(self) -> int:
        """Return the RunStatus of the collective at whose row the table failed."""
        return self._view[STATUS]

    @property
    def state(self) -> State:
        """Return the state of the device."""
        return State(self._view[STATE])

    @state.setter
    def state(self, state: State) -> None:
        self._view[STATE] = state

    @property
    def in_flight(self) -> list[SegmentRow]:
        """Return the rows that have started the collectives in flight."""
        first = len(self._data) - len(self._collectives)
        headers = self._data[first : first + self._view[IN_FLIGHT]]
        return [self._collectives[int(header)] for header in headers]
