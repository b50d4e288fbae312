"""Live ranges in one order of a computation: where each value is written and read, and live bytes per position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction, Opcode


class LiveRanges:
    """Live ranges of one order, as rematerialization needs them.

    position[i]: position of an instruction. reads_at[v]: positions that read value v, ascending. needs[n]: bytes live
    while position n runs (int64); the caller may adjust it while it plans changes.
    """

    def __init__(self, model: MemoryModel, order: Sequence[HloInstruction]) -> None:
        self.model = model
        self.order = tuple(order)
        self.position = {instruction: n for n, instruction in enumerate(order)}
        self.reads_at: dict[HloInstruction, list[int]] = {i: [] for i in order}
        for position, instruction in enumerate(order):
            for source in model.reads[instruction]:
                self.reads_at[source].append(position)
        self.needs = np.array(model.needs(order), np.int64)
        self._returned = dict.fromkeys(model.sources[model.computation.root])
        self._overwritten = dict.fromkeys(model.overwrites.values())
        self._replaceable: dict[HloInstruction, bool] = {}

    def last(self, value: HloInstruction) -> int:
        """Return the position at which the value dies: its last read, or the end of the order if it is returned."""
        if value in self._returned:
            return len(self.order)
        reads = self.reads_at[value]
        return reads[-1] if reads else self.position[value]

    def is_always_there(self, value: HloInstruction) -> bool:
        """Return whether ``value`` is an input that is never overwritten.

        A loop's state is not: its memory is that of the initial values.
        """
        if value.opcode in (Opcode.WHILE, Opcode.CONDITIONAL) or value in self._overwritten:
            return False
        return not self.model.size[value]

    def is_replaceable(self, value: HloInstruction) -> bool:
        """Return whether all readers can read another instruction instead, directly or through views."""
        if value not in self._replaceable:
            self._replaceable[value] = self._may_move(value)
        return self._replaceable[value]

    def _may_move(self, value: HloInstruction) -> bool:
        if value in self._returned or value in self._overwritten or not self.model.size[value]:
            return False
        stack = [value]
        while stack:
            for user in stack.pop().users:
                if self.model.is_view(user):
                    if user.control_predecessors or user.control_successors:
                        return False
                    stack.append(user)
                elif value not in self.model.reads[user]:
                    return False
        return True

    @cached_property
    def gaps(self) -> Gaps:
        return Gaps(self)


class Gaps:
    """Intervals ``start < n < end`` in which a value is live, but neither written nor read."""

    def __init__(self, live_ranges: LiveRanges) -> None:
        self._live_ranges = live_ranges
        starts, ends, sizes = [], [], []
        self.values: list[HloInstruction] = []
        for value, reads in live_ranges.reads_at.items():
            size = live_ranges.model.size[value]
            if not (size and reads):
                continue
            start = live_ranges.position[value]
            for end in reads:
                if end > start + 1:
                    self.values.append(value)
                    starts.append(start)
                    ends.append(end)
                    sizes.append(size)
                start = end
        self.starts, self.ends, self.sizes = (np.array(x, np.int64) for x in (starts, ends, sizes))

    def across(self, position: int, most: int) -> list[int]:
        """Return numbers of replaceable values' gaps around ``position``: ``most`` at most, the largest first."""
        around = np.flatnonzero((self.starts < position) & (self.ends > position))
        found: list[int] = []
        for number in around[np.argsort(-self.sizes[around], kind="stable")].tolist():
            if len(found) == most:
                break
            if self._live_ranges.is_replaceable(self.values[number]):
                found.append(number)
        return found
