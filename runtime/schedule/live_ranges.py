"""Live ranges in one order of a computation: positions of writes and reads, and live bytes per position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction, Opcode


class LiveRanges:
    """Live ranges of one order, for rematerialization.

    position[i]: position of instruction i. reads_at[v]: positions of the instructions that read value v, ascending.
    needs[n]: bytes that are live while the instruction at position n runs (int64); the caller may change the array
    while it plans edits.
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
        """Return the position of the last read of ``value``, or the length of the order if it is returned."""
        if value in self._returned:
            return len(self.order)
        reads = self.reads_at[value]
        return reads[-1] if reads else self.position[value]

    def is_always_there(self, value: HloInstruction) -> bool:
        """Return whether ``value`` is an input that is never overwritten, and so can be read at any position.

        Results of loops and conditionals are not: a loop's state has the memory of its initial values.
        """
        if value.opcode in (Opcode.WHILE, Opcode.CONDITIONAL) or value in self._overwritten:
            return False
        return not self.model.size[value]

    def is_replaceable(self, value: HloInstruction) -> bool:
        """Return whether all readers of ``value`` could read another instruction instead, directly or through views."""
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
        """Return the gaps of all values."""
        return Gaps(self)


class Gaps:
    """Gaps of live ranges: positions ``start < n < end`` between two accesses, at which a value is only kept.

    Gap n belongs to ``values[n]``, with ``starts[n]``, ``ends[n]`` and ``sizes[n]`` (bytes).
    """

    def __init__(self, live_ranges: LiveRanges) -> None:
        """Collect the gaps of all values of ``live_ranges`` that occupy memory and are read."""
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
        """Return the numbers of at most ``most`` gaps around ``position``, by descending size.

        The values of these gaps are replaceable.
        """
        around = np.flatnonzero((self.starts < position) & (self.ends > position))
        found: list[int] = []
        for number in around[np.argsort(-self.sizes[around], kind="stable")].tolist():
            if len(found) == most:
                break
            if self._live_ranges.is_replaceable(self.values[number]):
                found.append(number)
        return found
