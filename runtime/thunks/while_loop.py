"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import Action, BufferUse, LoadedProgram, Role, Thunk, UseKind


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

        def run() -> None:
            condition()
            while predicate[()]:
                body()
                condition()

        return run
