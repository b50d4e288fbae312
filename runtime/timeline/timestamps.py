"""Timestamps of thunks, as every back end records them.

Thunks of a sequence follow one another without a gap, so one timestamp at the end of each thunk is enough. Composite
thunks also record their begin. A wait for a collective also records when the peers arrived and when it was complete.
The device computes nothing from timestamps while it runs: ``events.py`` reads them afterwards.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from spmd.lazy_dataclass import dataclass

Timestamp: TypeAlias = tuple[int, int]
"""Pair of a mark, which names the thunk and the moment (``moment_of``), and the clock's time in nanoseconds."""


class Moment(IntEnum):
    """Event recorded by a timestamp: thunk begin or end, peers arrived, collective complete, blocking wait over."""

    ENDS = 0
    BEGINS = 1
    MET = 2  # all peers that the awaited collective needs first had arrived; 0: it needs none
    LANDED = 3  # the awaited collective was found complete
    WAITED = 4  # a start, in a blocking step: the wait for its collective is over


def mark_of(number: int, moment: Moment) -> int:
    """Return the mark of ``moment`` for the thunk with that number in ``traverse``'s order."""
    return number * len(Moment) + moment


def moment_of(mark: int) -> tuple[int, Moment]:
    """Return the number of a mark's thunk, and its moment."""
    number, moment = divmod(mark, len(Moment))
    return number, Moment(moment)


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Timestamps of one step. ``number``: counted from 1, the same on all devices.

    is_blocking: each collective was waited for at its start.
    """

    number: int
    is_blocking: bool
    timestamps: tuple[Timestamp, ...]
