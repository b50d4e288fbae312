"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.codegen.llvm_segment import SegmentRow
from runtime.thunks.scalar_loop import scalar_loop
from runtime.thunks.segment import Segment
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind


@dataclass(frozen=True)
class WhileThunk(Thunk):
    """Run ``condition``; while ``predicate`` is true then, run ``body`` and the condition again.

    ``body`` ends with the copies that bring new values to the state's places. ``state`` says where array leaves of the
    loop's state lie, by number; leaves that no trip changes are not in it: they lie wherever they came from.
    """

    condition: ThunkSequence
    body: ThunkSequence
    predicate: ArrayView
    state: tuple[tuple[int, ArrayView], ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.predicate, Role.OPERAND)

    def nested(self) -> Iterator[Thunk]:
        yield self.condition
        yield self.body

    def prepare(self, program: LoadedProgram) -> Segment:
        """condition; unless predicate, go behind the end; body; go back to the condition.

        Where all of it is single elements, a call does many trips, and is repeated while the predicate holds; but not
        where somebody wants to know when each thunk ran.
        """
        condition, body = self.condition.prepare(program), self.body.prepare(program)
        predicate = program.array(self.predicate)
        number, address = program.number_of(self), predicate.ctypes.data
        trips = None
        if program.recorder is None:
            trips = scalar_loop(program, self.condition.thunks, self.body.thunks, self.predicate)
        if trips is not None:
            (call,) = trips.calls
            some = SegmentRow(number, call, call.record)
            again = SegmentRow.unless(number, address, 2), SegmentRow.jump(number, -2)
            return Segment((some, *again), (call, predicate))
        trip = len(condition.rows) + 1 + len(body.rows)
        leave = SegmentRow.unless(number, address, len(body.rows) + 2)
        rows = (*condition.rows, leave, *body.rows, SegmentRow.jump(number, -trip))
        return Segment(rows, (*condition.alive, *body.alive, predicate))
