"""Number of pieces into which a kernel is cut, and when that pays."""

from __future__ import annotations

from dataclasses import dataclass

#: Shortest piece that pays for another thread: taking it costs a microsecond, its data may lie in the other core's
#: cache, and the last piece is waited for.
LEAST_SECONDS = 15e-6
#: Pieces for each thread: a faster thread takes more of them.
PIECES_PER_THREAD = 2


@dataclass(frozen=True, slots=True)
class Cutting:
    """Limits on the number of pieces into which a kernel is cut.

    shared: pieces that ``threads`` compute concurrently. in_turn: pieces of one thread, which polls between them.
    """

    threads: int = 1
    shared: int = 1
    in_turn: int = 1

    @property
    def is_uncut(self) -> bool:
        """Return whether the kernel stays in one piece."""
        return self.shared == self.in_turn == 1


def pieces_worth(seconds: float, threads: int) -> int:
    """Return the number of pieces (>= 1) for ``threads`` of a kernel that takes one thread ``seconds``."""
    return max(1, min(PIECES_PER_THREAD * threads, int(seconds / LEAST_SECONDS)))
