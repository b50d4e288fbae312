"""Search for regions: instructions to compute piece by piece, so that a large value among them never exists entirely.

q = dot(x, w)              for each part of the rows:
e = exponential(q)             q' = dot(x', w);  e' = exponential(q')
y = dot(e, v)                  y' = dot(e', v), written into its rows of y

A region grows from a value that is to be freed. All readers of the value join the region, cut along the dimension that
corresponds to the value's cut dimension. Large results of these readers are cut as well; the other results are
assembled or summed. An operand that members read along the cut dimension joins if it is large and only members read
it; otherwise its slices are read.

A region may begin after a position ``since``: readers up to there keep reading entire values, and members computed up
to there are recomputed in pieces for their late readers. Thus a backward pass recomputes activations in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial

from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.recompute_cost import RecomputeCost
from spmd.analysis.cost import op_cost
from spmd.analysis.split_rules import Along, length_along, ways_to_split
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass

#: Largest number of instructions of one region, and of steps of its growth.
MOST_MEMBERS = 48
MOST_STEPS = 400
#: Largest number of values at the peak from which regions grow, the largest values first, and the least fraction of the
#: live bytes that such a value must have.
MOST_SEEDS = 6
LEAST_SHARE = 1 / 16
#: Values that are at least this many times smaller than the freed value are assembled, and do not extend the region.
SMALL = 8
MOST_PIECES = 8
#: Bytes of memory traffic that take as long as the start of one more instruction.
BYTES_PER_INSTRUCTION = 4096.0

#: Inputs and constants, which need no computation.
_GIVEN = frozenset({Opcode.PARAMETER, Opcode.CONSTANT, Opcode.GET_TUPLE_ELEMENT})


@dataclass(frozen=True)
class Region:
    """Instructions to compute in ``pieces`` pieces.

    members: the instructions in their order, of which the first ``again`` are recomputed. along[m]: dimensions along
    which member m and its operands are cut. results: members that other instructions read, which are assembled. cost:
    added work. freed: bytes that are freed at the queried position.
    """

    pieces: int
    members: tuple[HloInstruction, ...]
    again: int
    along: dict[HloInstruction, Along]
    results: tuple[HloInstruction, ...]
    cost: RecomputeCost
    freed: int

    @property
    def worth(self) -> float:
        """Return the freed bytes per work, as for repeats (rematerialize.py)."""
        return self.freed / (self.cost.weight + self.freed)


class RegionSearch:
    """Search for regions of one computation. It caches the ways to split instructions. Pieces are not cut again."""

    def __init__(self) -> None:
        self._ways: dict[HloInstruction, tuple[Along, ...]] = {}

    def leave(self, pieces: Iterable[HloInstruction]) -> None:
        """Exclude ``pieces`` from later regions."""
        self._ways.update((piece, ()) for piece in pieces)

    def ways(self, instruction: HloInstruction) -> tuple[Along, ...]:
        """Return the ways to cut ``instruction`` (spmd/analysis/split_rules.py); none if it is a piece."""
        if instruction not in self._ways:
            self._ways[instruction] = ways_to_split(instruction)
        return self._ways[instruction]

    def at(self, live_ranges: LiveRanges, top: int) -> Iterator[Region]:
        """Yield regions whose computation in pieces lowers the live bytes at position ``top``."""
        sizes = live_ranges.model.size
        floor = LEAST_SHARE * float(live_ranges.needs[top])
        live = [
            v
            for v in live_ranges.order[: top + 1]
            if sizes[v] >= floor and live_ranges.last(v) >= top and self.ways(v)
        ]
        seeds = sorted(live, key=lambda v: -sizes[v])[:MOST_SEEDS]
        for since in _pauses(live_ranges, seeds, top):
            grown: set[tuple[HloInstruction, Along]] = set()
            for seed in seeds:
                for along in self.ways(seed):
                    if along.result is None or (seed, along) in grown:
                        continue
                    growth = _Growth(live_ranges, self.ways, sizes[seed] // SMALL, since)
                    if growth.is_region(seed, along):
                        yield from growth.regions(top)
                    grown.update(growth.along.items())


def _pauses(live_ranges: LiveRanges, values: Sequence[HloInstruction], top: int) -> list[int]:
    """Return the candidates for ``_Growth.since``: -1, and the last access before ``top`` of values in a gap there."""
    found = {-1: None}
    for value in values:
        events = [live_ranges.position[value], *live_ranges.reads_at[value]]
        before = [n for n in events if n < top]
        if before and top not in events and len(before) < len(events):
            found[before[-1]] = None
    return list(found)


@dataclass
class _Growth:
    """Growth of one region.

    ways: function that returns the ways to cut an instruction. floor: values of fewer bytes do not extend the region.
    since: readers up to this position keep reading entire values. along: members, with the way each is cut.
    """

    live_ranges: LiveRanges
    ways: Callable[[HloInstruction], tuple[Along, ...]]
    floor: int
    since: int
    along: dict[HloInstruction, Along] = field(default_factory=dict)
    #: Greatest common divisor of the members' cut lengths: members can be cut into n equal parts if n divides it.
    common: int = 0
    _steps: int = 0
    #: Instructions whose attempt failed; they are not tried again.
    _refused: set[HloInstruction] = field(default_factory=set)

    @property
    def again(self) -> int:
        """Return the number of members that are recomputed."""
        return sum(self.live_ranges.position[member] <= self.since for member in self.along)

    def is_region(self, seed: HloInstruction, along: Along) -> bool:
        """Grow the region from ``seed``, cut along ``along``. Returns whether ``seed`` need not exist entirely then."""
        if not (self._adds(seed, along) and self._readers_join(seed)):
            return False
        return self.again < len(self.along) and self._closes()

    # ---- growing
    def _readers_join(self, value: HloInstruction) -> bool:
        """Let all late readers of ``value`` read pieces. Returns whether they can."""
        if value is self.live_ranges.model.computation.root:
            return False
        late = list(self._late_readers(value))
        if not late and self.live_ranges.position[value] > self.since:
            return False
        return all(self._joins(user) for user in late)

    def _late_readers(self, value: HloInstruction) -> Iterator[HloInstruction]:
        """Yield the users after ``since``, and earlier views that have such users."""
        for user in value.users:
            is_late = self.live_ranges.position.get(user, -1) > self.since
            if is_late or (self.live_ranges.model.is_view(user) and any(self._late_readers(user))):
                yield user

    def _joins(self, user: HloInstruction) -> bool:
        """Let ``user`` read pieces of those members that it reads. Returns whether it can."""
        self._steps += 1
        if user in self.along:
            return self._agrees(user, self.along[user])
        for along in self.ways(user):
            if self._agrees(user, along) and self._adds(user, along):
                if self.live_ranges.position[user] <= self.since:
                    return self._readers_join(user)
                if along.result is not None and self._is_large(user):
                    self._attempt(user, partial(self._readers_join, user))
                return True
        return False

    def _agrees(self, user: HloInstruction, along: Along) -> bool:
        """Return whether each member that ``user`` reads is cut as ``along`` requires."""
        for operand, dim in zip(user.operands, along.operands, strict=True):
            cut = self.along.get(operand)
            if cut is not None and (dim is None or cut.result != dim):
                return False
        return True

    def _adds(self, one: HloInstruction, along: Along) -> bool:
        """Make ``one`` a member, and its large operands along the cut dimension if possible.

        Returns whether ``one`` is a member.
        """
        if one not in self.live_ranges.position:
            return False
        common = math.gcd(self.common, length_along(one, along))
        if common < 2 or len(self.along) >= MOST_MEMBERS or self._steps >= MOST_STEPS:
            return False
        self.along[one], self.common = along, common
        for operand, dim in zip(one.operands, along.operands, strict=True):
            if dim is None or operand in self.along or operand.opcode in _GIVEN:
                continue
            if self._is_large(operand):
                self._attempt(operand, partial(self._is_made, operand, dim))
        return True

    def _is_made(self, operand: HloInstruction, dim: int) -> bool:
        """Make ``operand`` a member that is cut along ``dim``. Returns whether that is possible."""
        self._steps += 1
        for along in self.ways(operand):
            if along.result == dim and self._agrees(operand, along):
                return self._adds(operand, along) and self._readers_join(operand)
        return False

    def _attempt(self, one: HloInstruction, grow: Callable[[], bool]) -> None:
        """Call ``grow``, which grows the region by ``one``, and restore the region if it returns False."""
        if one in self._refused:
            return
        along, common = dict(self.along), self.common
        if not grow():
            self._refused.add(one)
            self.along, self.common = along, common

    def _is_large(self, value: HloInstruction) -> bool:
        """Return whether a buffer that holds ``value`` has at least ``floor`` bytes."""
        sizes = self.live_ranges.model.size
        return any(sizes[s] >= max(self.floor, 1) for s in self.live_ranges.model.sources[value])

    def _closes(self) -> bool:
        """Add the instructions that depend on members and on which members depend.

        Returns whether all of these could join, so that the region can be computed without other instructions between.
        """
        while (outside := self._first_between()) is not None:
            if not self._joins(outside):
                return False
            if not all(self._agrees(u, self.along[u]) for u in outside.users if u in self.along):
                return False
        return True

    def _first_between(self) -> HloInstruction | None:
        """Return the first non-member that depends on members and on which members depend."""
        positions = [
            p for p in map(self.live_ranges.position.__getitem__, self.along) if p > self.since
        ]
        span = self.live_ranges.order[min(positions) : max(positions) + 1]
        behind: set[HloInstruction] = set()
        for instruction in span:
            if instruction in self.along or not behind.isdisjoint(predecessors(instruction)):
                behind.add(instruction)
        ahead: set[HloInstruction] = set()
        first = None
        for instruction in reversed(span):
            is_member = instruction in self.along
            if is_member or instruction in ahead:
                ahead.update(predecessors(instruction))
            if not is_member and instruction in ahead and instruction in behind:
                first = instruction
        return first

    # ---- freed bytes and added work
    def regions(self, top: int) -> Iterator[Region]:
        """Yield the region with several numbers of pieces, if it frees bytes at position ``top``."""
        members = tuple(sorted(self.along, key=self.live_ranges.position.__getitem__))
        root = self.live_ranges.model.computation.root
        again = self.again
        results = tuple(
            m
            for m in members[again:]
            if m is root or any(user not in self.along for user in m.users)
        )
        live = 0
        for member in members:
            size = self.live_ranges.model.size[member]
            if size and self.live_ranges.position[member] <= top <= self.live_ranges.last(member):
                live += size
        assembled = sum(result.shape.byte_size for result in results)
        for pieces in _numbers_of_pieces(self.common):
            freed = live - assembled - live // pieces
            if freed > 0:
                cost = self._added_cost(members, results, pieces)
                for member in members[:again]:
                    cost += RecomputeCost.of(op_cost(member))
                yield Region(pieces, members, again, dict(self.along), results, cost, freed)

    def _added_cost(
        self,
        members: tuple[HloInstruction, ...],
        results: tuple[HloInstruction, ...],
        pieces: int,
    ) -> RecomputeCost:
        """Return the work that ``pieces`` pieces add to that of the entire members.

        It consists of operands that each piece reads entirely, the assembly of results, and the start of instructions.
        """
        more = pieces - 1
        traffic = BYTES_PER_INSTRUCTION * more * len(members)
        for member in members:
            for operand, dim in zip(member.operands, self.along[member].operands, strict=True):
                if dim is None and operand.opcode is not Opcode.BROADCAST:
                    traffic += more * operand.shape.byte_size
        for result in results:
            summed = self.along[result].result is None
            traffic += result.shape.byte_size * (3 * more if summed else 2)
        return RecomputeCost(0.0, traffic)


def predecessors(instruction: HloInstruction) -> tuple[HloInstruction, ...]:
    """Return the operands and the control predecessors of ``instruction``."""
    return (*instruction.operands, *instruction.control_predecessors)


def _numbers_of_pieces(common: int) -> list[int]:
    """Return the smallest, a middle and the largest number of pieces, up to MOST_PIECES, that divide ``common``."""
    found = [n for n in range(2, MOST_PIECES + 1) if common % n == 0]
    return sorted({found[0], found[len(found) // 2], found[-1]}) if found else []
