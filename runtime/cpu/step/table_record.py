"""Records of a device's table and of a timestamp log, which native code and Python both read."""

from __future__ import annotations

from enum import IntEnum

from runtime.codegen.ir.record import (
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
    """Beginning of a device's table, before its rows.

    rows: number of rows. position: address of the position's THUNK word (STARTED follows it). row: the next row.
    status: RunStatus of a failed collective. state: the device's State. in_flight: number of collectives in flight;
    in_flight_list: address of the list of their headers; looked: time of their last poll (nanoseconds of
    CLOCK_MONOTONIC). open_share: address of the word that publishes shares to other threads (0: there are none).
    log: address of the timestamp log (0: no timeline is recorded).
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
    """Beginning of a timestamp log: number of timestamps, and its capacity."""

    count: Word
    room: Word


@record
class TimestampRecord(Record):
    """Timestamp: its mark, and nanoseconds of the clock that time.perf_counter_ns reads."""

    mark: Word
    time: Word


ROWS, POSITION, ROW, STATUS, STATE, IN_FLIGHT, IN_FLIGHT_LIST, LOOKED, OPEN_SHARE, LOG = (
    word_index(TableRecord, name) for name in field_names(TableRecord)
)
HEADER_WORDS = word_count(TableRecord)
LOG_WORDS, TIMESTAMP_WORDS = word_count(LogRecord), word_count(TimestampRecord)


class State(IntEnum):
    """State of a table's device, for workers that run several devices by turns (worker_ir.py)."""

    RUNNING = 0
    FINISHED = 1
    IN_PYTHON = 2  # waits for a collective that Python polls
