"""Waiting for late ranks: it goes on as long as they, or the ranks for which they wait, make progress.

A rank that computes for an hour is not lost: its time on the processor grows, or it stands in the system's queue for a
core. One that is stopped, or hangs, shows no sign of life, and one that is dead or has ended its program never comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from collectives.communicator.liveness.status_table import RankState, StatusTable

_POLL_SECONDS = 0.25
_FIRST_POLL_SECONDS = 0.02
"""Until peers' processes are looked at, which opens files: ranks that share a core wait for some milliseconds."""
_ASLEEP_SECONDS = 2.0

#: A launcher that sees a rank die ends the job within this time, with a better message; else the peers do.
_DEATH_SECONDS = 4.0

#: What a rank sent before it ended its program may be a little late.
_LEFT_SECONDS = 1.0


class StallDetector:
    """One wait of this rank. ``poll`` is called again and again, and answers False when there is no more hope.

    Then ``late`` are the ranks that have not come, ``culprits`` those that hold them up (they themselves, or the last
    in a chain of waiting; the stopped and the dead, where there are any), and ``gone`` culprits that never come.
    """

    def __init__(
        self,
        status: StatusTable,
        find_late: Callable[[], Sequence[int]],
        timeout_seconds: float,
        others: Sequence[int],
        waits_for: int | None = None,
    ) -> None:
        """``find_late``: the ranks that have certainly not arrived; empty if none is known.

        waits_for: what the status table shows, instead of the first rank that is late.
        others: the ranks that this one may wait for, if none is known to be late.
        """
        self._status = status
        self._find_late = find_late
        self._timeout = timeout_seconds
        self._others = tuple(others)
        self._waits_for = waits_for
        self._pause = min(_POLL_SECONDS, timeout_seconds / 4)
        self._progress = time.monotonic()
        self._next = self._progress + min(_FIRST_POLL_SECONDS, self._pause)
        self._signs: dict[int, tuple[object, ...]] = {}
        #: Since when it is known that a rank does not come.
        self._gone: dict[int, float] = {}
        self.late: tuple[int, ...] = ()
        self.culprits: tuple[int, ...] = ()
        self.gone: tuple[int, ...] = ()

    def poll(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return True
        if now > self._next + _ASLEEP_SECONDS:  # a job that was suspended: no rank made progress
            self._progress = now
        self._next = now + self._pause
        certain = tuple(self._find_late())
        self.late = certain or self._others
        self._status.waits_for(self.late[0] if self._waits_for is None else self._waits_for)
        ends = self._blocking_ranks(self.late)
        self.culprits = tuple(filter(self._is_in_trouble, ends)) or ends
        self.gone = tuple(
            rank for rank in self.culprits if self._is_gone(rank, rank in certain, now)
        )
        if self.gone:
            return False
        signs = {rank: self._status.signs(rank) for rank in ends}
        if signs != self._signs or any(map(self._status.is_at_work, ends)):
            self._signs, self._progress = signs, now
        return now - self._progress <= self._timeout

    def _blocking_ranks(self, late: Sequence[int]) -> tuple[int, ...]:
        """Return the ends of the wait chains: ranks that wait for no rank, or cannot; all ranks of a cycle."""
        seen: dict[int, None] = {}
        ends = []
        chain = list(late)
        for rank in chain:  # which grows
            if rank in seen:
                continue
            seen[rank] = None
            awaited = [] if self._is_in_trouble(rank) else self._status.awaited_by(rank)
            chain += awaited
            if not awaited:
                ends.append(rank)
        return tuple(ends or seen)

    def _is_in_trouble(self, rank: int) -> bool:
        process = self._status.process(rank)
        return process is not None and bool(process.trouble())

    def _is_gone(self, rank: int, is_late: bool, now: float) -> bool:
        has_left = self._status.rank_state(rank) is RankState.LEFT
        process = self._status.process(rank)
        if has_left and not is_late:
            return False  # it has come, and its messages are under way
        if not has_left and (process is None or not process.is_dead()):
            return False
        grace_seconds = _LEFT_SECONDS if has_left else _DEATH_SECONDS
        return now - self._gone.setdefault(rank, now) > grace_seconds
