"""Dependences between instructions and collectives, so that a kernel of several results does not tie two together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass

_COLLECTIVES = frozenset((*KIND, Opcode.ASYNC_START))


@dataclass(frozen=True)
class CollectiveSides:
    """Dependences on collectives, as bit sets. before: those that an instruction needs; behind: those that need it.

    r = all-reduce(x)      a: needs none, s needs it
    a = negate(y)          b: needs r
    b = negate(r)
    s = all-reduce(a)      In one kernel, a would wait for r, and s with it.
    """

    before: Mapping[HloInstruction, int]
    behind: Mapping[HloInstruction, int]

    @staticmethod
    def of(order: Sequence[HloInstruction]) -> CollectiveSides:
        """Compute the sets for ``order``, a computation's instructions, operands first."""
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
        """Return whether two kernels with these results need the same collectives, and the collectives that need one of
        them include those that need the other. Pieces of a split collective do not match: each has its own collective.
        """
        (before, behind), (before_other, behind_other) = self._sides(one), self._sides(other)
        return before == before_other and behind & behind_other in (behind, behind_other)

    def _sides(self, roots: Iterable[HloInstruction]) -> tuple[int, int]:
        listed = list(roots)
        return _union(self.before[x] for x in listed), _union(self.behind[x] for x in listed)


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found
