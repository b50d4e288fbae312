"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.thunks.thunk import Action, BufferUse, LoadedProgram, StampsThunks, Thunk


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """``name`` is the computation's."""

    thunks: tuple[Thunk, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())

    def nested(self) -> Iterator[Thunk]:
        return iter(self.thunks)

    def prepare(self, program: LoadedProgram) -> Action:
        own = [thunk.prepare(program) for thunk in self.thunks]
        actions = own if program.recorder is None else _recorded(self, own, program.recorder)

        def run() -> None:
            try:
                for action in actions:
                    action()
            except Exception as error:
                running = self.thunks[own.index(action)].name
                error.add_note(f"while running {running} in {self.name}")
                raise

        return run


def _recorded(
    sequence: ThunkSequence, actions: Sequence[Action], recorder: StampsThunks
) -> list[Action]:
    """``actions`` with stamps between them: a list of calls costs less than calls around calls."""
    own = recorder.number(sequence)
    recorded = [recorder.begins(own)]
    for thunk, action in zip(sequence.thunks, actions, strict=True):
        number = recorder.number(thunk)
        if isinstance(thunk, ThunkSequence):
            recorded += [action]  # which stamps for itself
        elif next(thunk.nested(), None) is None:
            recorded += [action, recorder.ends(number)]
        else:
            recorded += [recorder.begins(number), action, recorder.ends(number)]
    return [*recorded, recorder.ends(own)]
