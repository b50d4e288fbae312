"""A device's segment in memory, as native code reads it, and where the device stands in it."""

from __future__ import annotations

import numpy as np

from collectives.communicator.liveness.status_table import THUNK
from runtime.cpu.step.segment import Segment
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.cpu.step.table_record import (
    FLIGHT_LIST,
    HEADER_WORDS,
    IN_FLIGHT,
    LOG,
    OFFER,
    OUTCOME,
    POSITION,
    ROW,
    ROWS,
    STATE,
    State,
)


class Table:
    """Rows, linked: collectives must be connected by now. ``rank``: the device's.

    One thread at a time runs it. Python reads and changes its words between native calls alone.
    """

    def __init__(self, segment: Segment, position: memoryview, rank: int = 0, log: int = 0) -> None:
        """``position``: the device's, where rows leave their thunks' numbers. log: address of that of stamps."""
        self.rank = rank
        self.rows = segment.rows
        words = [word for row in segment.rows for word in row.words]
        # A collective is in flight once at most.
        self._collectives = {row.words[1]: row for row in segment.rows if row.is_start}
        self._words = np.zeros(HEADER_WORDS + len(words) + len(self._collectives), np.int64)
        self._words[HEADER_WORDS : HEADER_WORDS + len(words)] = words
        position_words = np.frombuffer(position, np.int64)
        self.address = int(self._words.ctypes.data)
        self._view = self._words.data
        self._view[ROWS] = len(segment.rows)
        self._view[POSITION] = position_words[THUNK:].ctypes.data
        self._view[FLIGHT_LIST] = self.address + 8 * (HEADER_WORDS + len(words))
        self._view[LOG] = log
        self._alive = (segment.alive, position_words)

    def offer_at(self, address: int) -> None:
        """Set the address at which other threads look for shared work of the device."""
        self._view[OFFER] = address

    @property
    def has_shares(self) -> bool:
        """Whether there is anything that several threads could do."""
        return any(row.is_share for row in self.rows)

    @property
    def row(self) -> SegmentRow:
        """The one to go on with, before the end."""
        return self.rows[self._view[ROW]]

    def pass_row(self) -> None:
        """Python has done it."""
        self._view[ROW] += 1

    @property
    def outcome(self) -> int:
        """The status of the collective at whose row the table failed."""
        return self._view[OUTCOME]

    @property
    def state(self) -> State:
        return State(self._view[STATE])

    @state.setter
    def state(self, state: State) -> None:
        self._view[STATE] = state

    @property
    def in_flight(self) -> list[SegmentRow]:
        """The rows that have started what was not yet waited for."""
        first = len(self._words) - len(self._collectives)
        headers = self._words[first : first + self._view[IN_FLIGHT]]
        return [self._collectives[int(header)] for header in headers]
