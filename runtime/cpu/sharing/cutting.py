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
    """The most pieces into which a kernel is cut.

    shared: pieces that ``threads`` compute at once. in_turn: pieces of one thread, between which it does other work.
    """

    threads: int = 1
    shared: int = 1
    in_turn: int = 1

    @property
    def is_whole(self) -> bool:
        """True if the kernel stays in one piece."""
        return self.shared == self.in_turn == 1


def pieces_worth(seconds: float, threads: int) -> int:
    """Return the number of pieces for ``threads`` of a kernel that takes one thread so many seconds, at least 1."""
    return max(1, min(PIECES_PER_THREAD * threads, int(seconds / LEAST_SECONDS)))
