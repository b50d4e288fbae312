"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.codegen.llvm_segment import SegmentRow
from runtime.thunks.scalar_loop import scalar_loop
from runtime.thunks.segment import Segment, most_direct
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import Action, BufferUse, LoadedProgram, Role, Thunk, UseKind
from spmd.literal import NDArray


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

    def prepare(self, program: LoadedProgram) -> Action:
        condition, body = self.condition.prepare(program), self.body.prepare(program)
        predicate = program.array(self.predicate)
        if isinstance(condition, Segment) and isinstance(body, Segment):
            return self._segment(program, condition, body, predicate)
        condition, body = most_direct(condition), most_direct(body)

        def run() -> None:
            condition()
            while predicate[()]:
                body()
                condition()

        return run

    def _segment(
        self, program: LoadedProgram, condition: Segment, body: Segment, predicate: NDArray
    ) -> Segment:
        """condition; unless predicate, go behind the end; body; go back to the condition.

        Where all of it is single elements, a call does many trips, and is repeated while the predicate holds.
        """
        number, address = program.number_of(self), predicate.ctypes.data
        trips = scalar_loop(program, self.condition.thunks, self.body.thunks, self.predicate)
        if trips is not None:
            (call,) = trips.calls
            some = SegmentRow(number, call.function, call.record)
            again = SegmentRow.unless(number, address, 2), SegmentRow.jump(number, -2)
            return Segment(program.position, (some, *again), (call.alive, predicate))
        trip = len(condition.rows) + 1 + len(body.rows)
        leave = SegmentRow.unless(number, address, len(body.rows) + 2)
        rows = (*condition.rows, leave, *body.rows, SegmentRow.jump(number, -trip))
        return Segment(program.position, rows, (*condition.alive, *body.alive, predicate))
