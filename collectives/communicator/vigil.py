"""How long to wait for ranks that are late: as long as they, or those that they wait for in turn, get on.

A rank that computes for an hour is not lost: its time on the processor grows. One that is stopped, or hangs, shows no
sign of life, and one that is dead or has ended its program never comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from collectives.communicator.status import Life, StatusBoard

_GLANCE_SECONDS = 0.25

#: A launcher that sees a rank die ends the job within this time, with a better message; else the peers do.
_DEATH_SECONDS = 4.0


class Vigil:
    """One wait of this rank. ``glance`` is called again and again, and answers False when there is no more hope.

    Then ``late`` are the ranks that have not come, ``culprits`` those that hold them up (they themselves, or the last
    in a chain of waiting; the stopped and the dead, where there are any), and ``gone`` culprits that never come.
    """

    def __init__(
        self,
        board: StatusBoard,
        find_late: Callable[[], Sequence[int]],
        timeout_seconds: float,
        waits_for: int | None = None,
    ) -> None:
        """``waits_for``: what the peers are told, instead of the first rank that is late."""
        self._board = board
        self._find_late = find_late
        self._timeout = timeout_seconds
        self._waits_for = waits_for
        self._pause = min(_GLANCE_SECONDS, timeout_seconds / 4)
        self._next = self._progress = time.monotonic()
        self._signs: dict[int, tuple[object, ...]] = {}
        #: Since when a rank is known to be dead.
        self._dead: dict[int, float] = {}
        self.late: tuple[int, ...] = ()
        self.culprits: tuple[int, ...] = ()
        self.gone: tuple[int, ...] = ()

    def glance(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return True
        self._next = now + self._pause
        self.late = tuple(self._find_late())
        self._board.waits_for(self.late[0] if self._waits_for is None else self._waits_for)
        ends = self._held_up_by(self.late)
        self.culprits = tuple(filter(self._is_in_trouble, ends)) or ends
        self.gone = tuple(rank for rank in self.culprits if self._is_gone(rank, now))
        if self.gone:
            return False
        signs = {rank: self._board.signs(rank) for rank in ends}
        if signs != self._signs:
            self._signs, self._progress = signs, now
        return now - self._progress <= self._timeout

    def _held_up_by(self, late: Sequence[int]) -> tuple[int, ...]:
        """The ends of the chains of waiting: who waits for nobody, or cannot; all of a ring that has no end."""
        seen: dict[int, None] = {}
        ends = []
        chain = list(late)
        while chain:
            rank = chain.pop(0)
            if rank in seen:
                continue
            seen[rank] = None
            awaited = [] if self._is_in_trouble(rank) else self._board.awaited_by(rank)
            chain += awaited
            if not awaited:
                ends.append(rank)
        return tuple(ends or seen)

    def _is_in_trouble(self, rank: int) -> bool:
        process = self._board.process(rank)
        has_left = self._board.life(rank) is Life.LEFT
        return has_left or (process is not None and bool(process.trouble()))

    def _is_gone(self, rank: int, now: float) -> bool:
        if self._board.life(rank) is Life.LEFT:
            return True
        process = self._board.process(rank)
        if process is None or not process.is_dead():
            return False
        return now - self._dead.setdefault(rank, now) > _DEATH_SECONDS
