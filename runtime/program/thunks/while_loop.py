"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.cpu.step.segment import Segment
from runtime.cpu.step.segment_ir import SegmentRow
from runtime.program.thunks.scalar_loop import scalar_loop
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind


@dataclass(frozen=True)
class WhileThunk(Thunk):
    """Run ``condition``; while ``predicate`` is true then, run ``body`` and the condition again.

    ``body`` ends with the copies that bring new values to the state's places. ``state`` says where array leaves of the
    loop's state lie, by number; leaves that no trip changes are not in it: they lie wherever they came from.
    ``trips``: how often the body runs, where that is known.
    """

    condition: ThunkSequence
    body: ThunkSequence
    predicate: ArrayView
    state: tuple[tuple[int, ArrayView], ...]
    trips: int | None = None

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.predicate, Role.OPERAND)

    def nested(self) -> Iterator[Thunk]:
        yield self.condition
        yield self.body

    def prepare(self, program: LoadedProgram) -> Segment:
        """condition; unless predicate, go behind the end; body; look at messages in flight; go back to the condition.

        Where all of it is single elements, a call does many trips, and is repeated while the predicate holds; but not
        where somebody wants to know when each thunk ran.
        """
        predicate = program.array(self.predicate)
        number, address = program.number_of(self), predicate.ctypes.data
        progress = program.progress
        condition = self.condition.prepare(program)
        over = progress.since  # what comes after the loop follows the condition
        body = self.body.prepare(program)
        look = progress.look(number) if progress.are_needed else Segment()
        progress.since = over
        trips = None
        if program.recorder is None:
            trips = scalar_loop(program, self.condition.thunks, self.body.thunks, self.predicate)
        if trips is not None:
            (call,) = trips.calls
            some = SegmentRow(number, call, call.record)
            leave = SegmentRow.unless(number, address, len(look.rows) + 2)
            again = SegmentRow.jump(number, -2 - len(look.rows))
            return Segment((some, leave, *look.rows, again), (call, predicate))
        trip = (*body.rows, *look.rows)
        leave = SegmentRow.unless(number, address, len(trip) + 2)
        again = SegmentRow.jump(number, -len(condition.rows) - 1 - len(trip))
        rows = (*condition.rows, leave, *trip, again)
        return Segment(rows, (*condition.alive, *body.alive, predicate))
