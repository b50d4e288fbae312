"""Search for chains of instructions to recompute for the late readers of a value, from values that are live there.

x2 = x*x           x2 = x*x                  Between the early reader f and the late reader g, x2 is live for g alone.
y  = f(x2)         y  = f(x2)                Since x is live anyway, a second x*x before g frees the bytes of x2 in
...peak...    =>   ...peak...                between. If x is not live either, x is also recomputed, and so on: the
z  = g(x2, x)      x2' = x*x                 recomputed instructions form a chain.
                   z  = g(x2', x)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.recompute_cost import RecomputeCost, is_cheap, recompute_cost
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition

#: The live range of a value may be extended if the value is at least this many times smaller than the freed value.
SMALL = 8


@dataclass(frozen=True)
class Repeat:
    """Recomputation of ``value`` at position ``end``, which frees its memory between ``start`` and ``end``.

    chain: instructions to recompute, in this order; the last one is ``value``. Readers of ``value`` from ``end`` on
    read the copy; if the chain is empty, they read ``instead[value]``. instead: for a source that the chain reads, an
    equal value that is read in its place. extended: values whose live ranges are extended to ``end``, with their
    present ends. cost: repeated work. freed: bytes that are freed at the queried position.
    """

    value: HloInstruction
    start: int
    end: int
    chain: tuple[HloInstruction, ...]
    instead: dict[HloInstruction, HloInstruction]
    extended: tuple[tuple[HloInstruction, int], ...]
    cost: RecomputeCost
    freed: int


@dataclass(frozen=True)
class Limits:
    """Limits on recomputation.

    only_cheap: only elementwise arithmetic may be repeated. most_links: largest length of a chain. collectives:
    collectives may be repeated. splits: regions may be computed in pieces.
    """

    only_cheap: bool = True
    most_links: int = 4
    collectives: bool = False
    splits: bool = False

    def cost(self, instruction: HloInstruction) -> RecomputeCost | None:
        """Return the cost of recomputing ``instruction``; None if these limits do not allow it."""
        if self.only_cheap and not is_cheap(instruction):
            return None
        return recompute_cost(instruction, collectives=self.collectives)


@dataclass
class Copies:
    """Classes of instructions with equal results: an original and the copies that all rounds have made of it."""

    limits: Limits
    original: dict[HloInstruction, HloInstruction] = field(default_factory=dict)
    _copies: dict[HloInstruction, list[HloInstruction]] = field(default_factory=dict)
    _costs: dict[HloInstruction, RecomputeCost | None] = field(default_factory=dict)

    def add(self, copy: HloInstruction, of: HloInstruction) -> None:
        """Add ``copy`` to the class of the instruction ``of``."""
        original = self.original.get(of, of)
        self.original[copy] = original
        self._copies.setdefault(original, [original]).append(copy)

    def equal_instructions(self, instruction: HloInstruction) -> Iterator[HloInstruction]:
        """Yield the members of the class of ``instruction`` that are still in the computation."""
        original = self.original.get(instruction, instruction)
        for one in self._copies.get(original, (original,)):
            if one.parent is not None:
                yield one

    def cost(self, instruction: HloInstruction) -> RecomputeCost | None:
        """Return ``Limits.cost`` of ``instruction``, which is cached for its class."""
        original = self.original.get(instruction, instruction)
        if original not in self._costs:
            self._costs[original] = self.limits.cost(instruction)
        return self._costs[original]


@dataclass
class RecomputeSearch:
    """Search for repeats in one order. A value that one repeat reads is not freed by later repeats.

    goal: largest number of live bytes at positions where values are recomputed or live ranges are extended.
    """

    live_ranges: LiveRanges
    copies: Copies
    goal: int
    #: Values that repeats free in a gap, and values that repeats read in place of others.
    _moved: dict[HloInstruction, None] = field(default_factory=dict)
    _relied_on: dict[HloInstruction, None] = field(default_factory=dict)

    def may_move(self, value: HloInstruction) -> bool:
        """Return whether a repeat may free ``value``: no repeat frees or reads it yet."""
        return value not in self._moved and value not in self._relied_on

    def find(self, value: HloInstruction, start: int, end: int, top: int) -> Repeat | None:
        """Return a repeat that frees ``value`` between ``start`` and ``end``, which enclose ``top``; None if none can.

        The chain grows from the value to those operands that cannot be read at ``end``.
        """
        size = self.live_ranges.model.size[value]
        instead: dict[HloInstruction, HloInstruction] = {}
        extended: dict[HloInstruction, int] = {}
        chain: dict[HloInstruction, None] = {}
        total = RecomputeCost()
        open_ends = [value]
        while open_ends:
            link = open_ends.pop()
            if link in chain or link in instead:
                continue
            found = self._at_hand(link, end, size, but=value)
            if found is not None:
                member, last = found
                instead[link] = member
                if last < end:
                    extended[member] = last
                continue
            cost = self.copies.cost(link)
            if cost is None or len(chain) == self.copies.limits.most_links:
                return None
            if link is not value and (
                link in self._moved or not self.live_ranges.is_replaceable(link)
            ):
                return None
            chain[link] = None
            total += cost
            open_ends.extend(self.live_ranges.model.reads[link])
        links = tuple(sorted(chain, key=self.live_ranges.position.__getitem__))
        freed = size - sum(
            self.live_ranges.model.size[member] for member, last in extended.items() if last < top
        )
        if freed <= 0 or not self._has_room(links, size, end):
            return None
        if self.live_ranges.position[value] == start:
            # No instruction reads the value before the gap, so it is computed later instead of twice.
            total = total if len(links) > 1 else RecomputeCost()
        return Repeat(value, start, end, links, instead, tuple(extended.items()), total, freed)

    def _at_hand(
        self, wanted: HloInstruction, at: int, size: int, *, but: HloInstruction
    ) -> tuple[HloInstruction, int] | None:
        """Return a value that can be read at position ``at`` in place of ``wanted``, and the end of its live range.

        If the end is before ``at``, the live range must be extended; it is that of a value small relative to ``size``
        bytes, or there is room for it. but: value that must not be returned. Returns None if there is no such value.
        """
        live_ranges = self.live_ranges
        if wanted is not but and live_ranges.is_always_there(wanted):
            return wanted, at
        ready = [
            one
            for one in self.copies.equal_instructions(wanted)
            if one is not but and one in live_ranges.position and live_ranges.position[one] < at
        ]
        for one in ready:
            if (
                one not in self._moved
                and live_ranges.last(one) >= at
                and self._may_replace(one, wanted)
            ):
                return one, live_ranges.last(one)
        for one in ready:
            if not self.may_move(one) or not live_ranges.is_replaceable(one):
                continue
            last, bytes_longer = live_ranges.last(one), live_ranges.model.size[one]
            peak = int(live_ranges.needs[last + 1 : at + 1].max(initial=0))
            if bytes_longer * SMALL <= size or peak + bytes_longer <= self.goal:
                return one, last
        return None

    def _may_replace(self, one: HloInstruction, wanted: HloInstruction) -> bool:
        return one is wanted or self.live_ranges.is_replaceable(wanted)

    def _has_room(self, chain: tuple[HloInstruction, ...], counted: int, at: int) -> bool:
        """Return whether the chain can be computed before position ``at`` without exceeding the goal.

        counted: bytes of the freed value, which the live bytes at ``at`` include.
        """
        model = self.live_ranges.model
        left = dict.fromkeys(chain, 0)
        for link in chain:
            for source in model.reads[link]:
                if source in left:
                    left[source] += 1
        live = most = 0
        for link in chain:
            dying = []
            for source in model.reads[link]:
                if source in left:
                    left[source] -= 1
                    if not left[source]:
                        dying.append(source)
            over = any(model.size[d] == model.size[link] for d in dying)
            in_place = over and definition(link.opcode).elementwise
            size = model.size[link]
            most = max(most, live + (0 if in_place else size) + model.while_running(link))
            live += size - sum(model.size[d] for d in dying)
        others = int(min(self.live_ranges.needs[at - 1], self.live_ranges.needs[at])) - counted
        return others + most <= self.goal

    def apply(self, repeat: Repeat) -> None:
        """Update the live bytes for ``repeat``, and mark the values that it frees and reads."""
        live_ranges, size = self.live_ranges, self.live_ranges.model.size
        live_ranges.needs[repeat.start + 1 : repeat.end] -= size[repeat.value]
        for member, last in repeat.extended:
            live_ranges.needs[last + 1 : repeat.end + 1] += size[member]
        self._moved[repeat.value] = None
        self._relied_on.update(dict.fromkeys(repeat.instead.values()))
