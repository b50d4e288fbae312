"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.thunks.thunk import Action, BufferUse, LoadedProgram, Thunk


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """``name`` is the computation's."""

    thunks: tuple[Thunk, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())

    def nested(self) -> Iterator[Thunk]:
        return iter(self.thunks)

    def prepare(self, program: LoadedProgram) -> Action:
        names = [thunk.name for thunk in self.thunks]
        actions = [thunk.prepare(program) for thunk in self.thunks]

        def run() -> None:
            done = 0
            try:
                for action in actions:
                    action()
                    done += 1
            except Exception as error:
                error.add_note(f"while running {names[done]} in {self.name}")
                raise

        return run
