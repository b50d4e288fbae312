"""Words of a device's table before its rows, and of a log of stamps: what native code and Python both read."""

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

    rows: how many. position: address of the position's THUNK word (STARTED follows it). row: the one to go on with.
    outcome: of a collective that failed. state: what the device does (State). in_flight: collectives in flight;
    flight_list: address of the list of their headers; looked: when they were looked at last (nanoseconds of
    CLOCK_MONOTONIC). offer: address of the word in which shares are offered to other threads (0: there are none).
    log: address of the log of stamps (0: none are taken).
    """

    rows: Word
    position: Address
    row: Word
    outcome: Word
    state: Word
    in_flight: Word
    flight_list: Address
    looked: Word
    offer: Address
    log: Address


@record
class LogRecord(Record):
    """Beginning of a log of stamps: how many there are, and room for how many."""

    stamps: Word
    room: Word


@record
class StampRecord(Record):
    """Stamp: its mark, and nanoseconds of the clock that time.perf_counter_ns reads."""

    mark: Word
    time: Word


ROWS, POSITION, ROW, OUTCOME, STATE, IN_FLIGHT, FLIGHT_LIST, LOOKED, OFFER, LOG = (
    word_index(TableRecord, name) for name in field_names(TableRecord)
)
HEADER_WORDS = word_count(TableRecord)
LOG_WORDS, STAMP_WORDS = word_count(LogRecord), word_count(StampRecord)


class State(IntEnum):
    """State of a table's device, for workers that run several devices by turns (worker_ir.py)."""

    RUNNING = 0
    FINISHED = 1
    IN_PYTHON = 2  # waits in a way that Python alone can ask about
