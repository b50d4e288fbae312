"""Points at which a computing device polls collectives in flight, so that messages between nodes make progress.

MPI moves messages while it is called, and native code calls it where it looks. A program has looks only where a
collective is in flight that needs them, and there so many that what is predicted to be computed between two takes no
longer than INTERVAL_SECONDS. A kernel that takes longer is cut as for several threads (runtime/cpu/sharing), with a
look after each piece. Looks that come sooner than they should, as in a loop of short trips, do nothing
(cpu/step/in_flight_ir.py).
"""

from __future__ import annotations

import math

from runtime.cpu.step.segment import Segment, joined
from runtime.cpu.step.segment_ir import SegmentRow

#: At 10 Gbit/s 250 KB come in meanwhile, about what a TCP connection's buffers hold before its sender has to pause; and
#: a look takes a hundredth of it where nothing has come, three where something has (MPICH over TCP: 2 and 6 us).
INTERVAL_SECONDS = 200e-6


class ProgressPoints:
    """Goes along while a device's thunks are prepared, in the order of the schedule.

    since: predicted seconds since the last look, at most, where the program now is.
    """

    def __init__(self, overlaps: bool = True) -> None:
        """``overlaps``: whether anything is computed while a collective is in flight."""
        self.since = 0.0
        self._overlaps = overlaps
        self._flying: set[str] = set()

    @property
    def are_needed(self) -> bool:
        """Whether something is in flight that goes on only while somebody looks.

        A collective's start and done are in one computation, so a loop's body and a conditional's branches begin and
        end with the same ones.
        """
        return self._overlaps and bool(self._flying)

    def start(self, name: str) -> None:
        """Such a collective is in flight from here on; its start has looked at it."""
        if not self._flying:
            self.since = 0.0
        self._flying.add(name)

    def finish(self, name: str) -> None:
        self._flying.discard(name)

    def pieces(self, seconds: float) -> int:
        """Into how many pieces a kernel is to be cut."""
        return max(1, math.ceil(seconds / INTERVAL_SECONDS)) if self.are_needed else 1

    def around(self, number: int, seconds: float, segment: Segment) -> Segment:
        """``segment`` of a thunk that takes so long, with looks between its pieces, and before it where that is due."""
        own = Segment(tuple(row.looking() for row in segment.rows), segment.alive)
        is_cut = any(row.looks for row in own.rows)
        alone = seconds / self.pieces(seconds) if is_cut else seconds
        if self.since > 0.0 and self.since + alone > INTERVAL_SECONDS:
            own = joined((self.look(number), own))
        self.since = 0.0 if is_cut else self.since + seconds
        return own

    def look(self, number: int) -> Segment:
        """A row of thunk ``number`` that looks."""
        self.since = 0.0
        return Segment((SegmentRow.progress(number),))
