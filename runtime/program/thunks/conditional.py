"""Run one of several sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.cpu.step.segment import Segment
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind


@dataclass(frozen=True)
class ConditionalThunk(Thunk):
    """``selector`` chooses: a pred takes branch 0 when true; an index out of range takes the last branch.

    Branches end with the copies that bring their results to ``results``.
    """

    selector: ArrayView
    branches: tuple[ThunkSequence, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.selector, Role.OPERAND)

    def nested(self) -> Iterator[Thunk]:
        return iter(self.branches)

    def prepare(self, program: LoadedProgram) -> Segment:
        """For each branch but the last: unless it is chosen, go behind it; the branch; go behind the last."""
        progress, begins = program.progress, program.progress.since
        branches, ends = [], []
        for branch in self.branches:
            progress.since = begins
            branches.append(branch.prepare(program))
            ends.append(progress.since)
        progress.since = max(ends)
        selector = program.array(self.selector)
        number, address = program.number_of(self), selector.ctypes.data
        rows = list(branches[-1].rows)
        for value in reversed(range(len(branches) - 1)):
            own = branches[value].rows
            if selector.dtype == bool:
                choose = SegmentRow.unless(number, address, len(own) + 2)
            else:
                choose = SegmentRow.unless_equal(number, address, value, len(own) + 2)
            rows = [choose, *own, SegmentRow.jump(number, len(rows) + 1), *rows]
        alive = tuple(one for branch in branches for one in branch.alive)
        return Segment(tuple(rows), (*alive, selector))
