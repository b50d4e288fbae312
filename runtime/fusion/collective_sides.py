"""Dependences between instructions and collectives.

Fusion consults them so that a kernel with several results does not make one collective wait for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass

_COLLECTIVES = frozenset((*KIND, Opcode.ASYNC_START))


@dataclass(frozen=True)
class CollectiveSides:
    """Dependences of a computation's instructions on its collectives, as bit sets with one bit per collective.

    ``before`` maps each instruction to the collectives that it depends on, ``behind`` to the collectives that depend on
    it. A collective is in its own ``before`` set.

        r = all-reduce(x)
        a = negate(y)          a depends on no collective; s depends on a
        b = negate(r)          b depends on r
        s = all-reduce(a)      If one kernel computed a and b, a would wait for r, and s would wait for that kernel.
    """

    before: Mapping[HloInstruction, int]
    behind: Mapping[HloInstruction, int]

    @staticmethod
    def of(order: Sequence[HloInstruction]) -> CollectiveSides:
        """Return the dependences of a computation. ``order`` lists all of its instructions, operands first."""
        bit = {x: 1 << n for n, x in enumerate(x for x in order if x.opcode in _COLLECTIVES)}
        before: dict[HloInstruction, int] = {}
        behind = dict.fromkeys(order, 0)
        for x in order:
            before[x] = bit.get(x, 0) | _union(before[y] for y in x.operands)
        for x in reversed(order):
            reached = behind[x] | bit.get(x, 0)
            for y in x.operands:
                behind[y] |= reached
        return CollectiveSides(before, behind)

    def may_merge(self, one: Iterable[HloInstruction], other: Iterable[HloInstruction]) -> bool:
        """Return whether one kernel may compute the results ``one`` and ``other`` of two kernels.

        Both must depend on the same collectives, and the collectives that depend on one of the two kernels must include
        all those that depend on the other. Kernels of different pieces of a split collective therefore stay apart.
        """
        (before, behind), (before_other, behind_other) = self._sides(one), self._sides(other)
        return before == before_other and behind & behind_other in (behind, behind_other)

    def _sides(self, roots: Iterable[HloInstruction]) -> tuple[int, int]:
        """Return the unions of the ``before`` sets and of the ``behind`` sets of ``roots``."""
        listed = list(roots)
        return _union(self.before[x] for x in listed), _union(self.behind[x] for x in listed)


def _union(sets: Iterable[int]) -> int:
    """Return the union of ``sets``."""
    return reduce(or_, sets, 0)
