"""Points at which a computing device polls collectives in flight, so that messages between nodes make progress.

Messages make progress only while MPI is called, and native code calls it at polling points. A program has these only
while a collective is in flight that needs them, so many that the predicted time between two is at most
INTERVAL_SECONDS. A kernel that takes longer is cut as for several threads (runtime/cpu/sharing), with a poll after each
piece. Polls that come too soon, as in a loop of short trips, do nothing (cpu/step/in_flight_ir.py).
"""

from __future__ import annotations

import math

from runtime.cpu.step.segment import Segment, SegmentRow, joined

#: Longest time between two polls. At 10 Gbit/s 250 KB arrive meanwhile, about what a TCP connection buffers before its
#: sender pauses. A poll takes 1 % of it if nothing has arrived, else 3 % (MPICH over TCP: 2 and 6 us).
INTERVAL_SECONDS = 200e-6


class ProgressPoints:
    """Insertion of polling points while a device's thunks are prepared in schedule order.

    since: upper bound of the predicted seconds since the last poll, at the current point of the program.
    """

    def __init__(self, overlaps: bool = True) -> None:
        """``overlaps``: something is computed while a collective is in flight."""
        self.since = 0.0
        self._overlaps = overlaps
        self._flying: set[str] = set()

    @property
    def are_needed(self) -> bool:
        """Return whether a collective is in flight that makes progress only while it is polled.

        A collective's start and done are in one computation, so a loop's body and a conditional's branches begin and
        end with the same ones.
        """
        return self._overlaps and bool(self._flying)

    def start(self, name: str) -> None:
        """Note that such a collective is in flight from here on; its start has polled it."""
        if not self._flying:
            self.since = 0.0
        self._flying.add(name)

    def finish(self, name: str) -> None:
        self._flying.discard(name)

    def pieces(self, seconds: float) -> int:
        """Return the number of pieces into which a kernel that takes ``seconds`` is cut."""
        return max(1, math.ceil(seconds / INTERVAL_SECONDS)) if self.are_needed else 1

    def around(self, number: int, seconds: float, segment: Segment) -> Segment:
        """Return ``segment``, a thunk of ``seconds``, with polls between its pieces and, if due, before it."""
        own = Segment(tuple(row.polling() for row in segment.rows), segment.alive)
        is_cut = any(row.polls for row in own.rows)
        alone = seconds / self.pieces(seconds) if is_cut else seconds
        if self.since > 0.0 and self.since + alone > INTERVAL_SECONDS:
            own = joined((self.look(number), own))
        self.since = 0.0 if is_cut else self.since + seconds
        return own

    def look(self, number: int) -> Segment:
        """Return a row of thunk ``number`` that polls."""
        self.since = 0.0
        return Segment((SegmentRow.progress(number),))
