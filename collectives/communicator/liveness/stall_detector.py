"""Detection of stalls: a wait continues while the late ranks, or the ranks for which these wait, make progress.

A rank that computes for an hour makes progress: its CPU time grows, or it is in the system's queue for a core. A rank
that is stopped or hangs makes none, and a rank that is dead or has ended its program will never arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from collectives.communicator.liveness.status_table import RankState, StatusTable

#: Interval of the checks: a quarter of the timeout if that is shorter.
_POLL_SECONDS = 0.25
_FIRST_POLL_SECONDS = 0.02
"""Delay of the first check, which opens files: waits of some milliseconds are common if ranks share a core."""
#: A check that comes this much too late shows that the job was suspended.
_ASLEEP_SECONDS = 2.0

#: Seconds after which a wait for a dead rank ends. A launcher that sees the rank die ends the job earlier, with a
#: better message.
_DEATH_SECONDS = 4.0

#: Seconds after which a wait for a rank that has ended its program ends: its last messages may still be on their way.
_LEFT_SECONDS = 1.0


class StallDetector:
    """Detector of a stall during one wait of this rank. The caller polls until ``poll`` returns False or the wait ends.

    After a poll, ``late`` are the ranks that have not arrived. ``culprits`` are the ranks that hold up the wait: the
    ends of the chains in which late ranks wait for other ranks, and of these only the dead and stopped ranks if there
    are any. ``gone`` are the culprits that will never arrive.
    """

    def __init__(
        self,
        status: StatusTable,
        find_late: Callable[[], Sequence[int]],
        timeout_seconds: float,
        others: Sequence[int],
        waits_for: int | None = None,
    ) -> None:
        """Create a detector on the node's table ``status``.

        ``find_late`` returns the ranks that have certainly not arrived; an empty sequence if none is known.
        ``timeout_seconds`` is the time without progress after which the wait is given up. ``others`` are the ranks for
        which this rank may be waiting; they count as late while none is known to be. ``waits_for`` is the rank that the
        status table shows as awaited; by default the first late rank.
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
        #: By rank, the time at which it was found to be dead or to have ended its program.
        self._gone: dict[int, float] = {}
        self.late: tuple[int, ...] = ()
        self.culprits: tuple[int, ...] = ()
        self.gone: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Check the late ranks, at intervals. Returns whether the caller should continue to wait."""
        now = time.monotonic()
        if now < self._next:
            return True
        if now > self._next + _ASLEEP_SECONDS:  # the job was suspended, so no rank made progress
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
        """Return the ranks at the ends of the chains in which ranks wait for ranks, beginning at the ``late`` ones.

        A chain ends at a rank that waits for no rank, or that is dead or stopped. If all chains run into cycles, all
        ranks of the chains are returned.
        """
        seen: dict[int, None] = {}
        ends = []
        chain = list(late)
        for rank in chain:  # the list grows during the iteration
            if rank in seen:
                continue
            seen[rank] = None
            awaited = [] if self._is_in_trouble(rank) else self._status.awaited_by(rank)
            chain += awaited
            if not awaited:
                ends.append(rank)
        return tuple(ends or seen)

    def _is_in_trouble(self, rank: int) -> bool:
        """Return whether the process of ``rank`` is known to be dead or stopped."""
        process = self._status.process(rank)
        return process is not None and bool(process.trouble())

    def _is_gone(self, rank: int, is_late: bool, now: float) -> bool:
        """Return whether ``rank`` will never arrive: it is dead, or has ended its program and is certainly late.

        The result is False during a grace period after this was first found.
        """
        has_left = self._status.rank_state(rank) is RankState.LEFT
        process = self._status.process(rank)
        if has_left and not is_late:
            return False  # it has arrived, and its messages are on their way
        if not has_left and (process is None or not process.is_dead()):
            return False
        grace_seconds = _LEFT_SECONDS if has_left else _DEATH_SECONDS
        return now - self._gone.setdefault(rank, now) > grace_seconds
