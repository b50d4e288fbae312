"""Which instructions of a computation depend on which."""

from __future__ import annotations

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction


class Reachability:
    """Dependence through operands and control edges, as one bit set per instruction.

    Takes time and memory in instructions squared over the word size: for passes that ask often about one computation.
    Does not follow edits.
    """

    def __init__(self, computation: HloComputation) -> None:
        self._bit: dict[HloInstruction, int] = {}
        self._before: dict[HloInstruction, int] = {}
        for position, x in enumerate(computation.post_order()):
            bit = 1 << position
            reached = bit
            for earlier in (*x.operands, *x.control_predecessors):
                reached |= self._before[earlier]
            self._bit[x] = bit
            self._before[x] = reached

    def reaches(self, before: HloInstruction, after: HloInstruction) -> bool:
        """``after`` needs ``before`` (or is it)."""
        return bool(self._before[after] & self._bit[before])

    def ordered(self, a: HloInstruction, b: HloInstruction) -> bool:
        return self.reaches(a, b) or self.reaches(b, a)
