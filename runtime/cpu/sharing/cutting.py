"""Number of pieces into which a kernel is cut, and when that pays."""

from __future__ import annotations

from dataclasses import dataclass

#: A piece that takes less is not worth another thread's while: to fetch it from another core takes a microsecond, what
#: it reads and writes may lie in the other core's cache, and the last piece is waited for.
LEAST_SECONDS = 15e-6
#: Pieces for each thread: whoever is faster does more of them.
PIECES_PER_THREAD = 2


@dataclass(frozen=True, slots=True)
class Cutting:
    """Into how many pieces a kernel is cut, or fewer.

    shared: for the ``threads`` that do them at once. in_turn: so that something else can be done between.
    """

    threads: int = 1
    shared: int = 1
    in_turn: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the kernel stays in one piece."""
        return self.shared == self.in_turn == 1


def pieces_worth(seconds: float, threads: int) -> int:
    """Into how many pieces what takes one thread so long is cut for ``threads``."""
    return max(1, min(PIECES_PER_THREAD * threads, int(seconds / LEAST_SECONDS)))
