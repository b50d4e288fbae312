"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.communicator.status import THUNK
from runtime.thunks.segment import Numbered, Segment, most_direct, segmented
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
        """A segment where every thunk is native, so that loops of such sequences are native too.

        A recorder takes its stamps between thunks, so there are no segments then.
        """
        actions = [(program.number_of(thunk), thunk.prepare(program)) for thunk in self.thunks]
        names = {program.number_of(thunk): thunk.name for thunk in self.thunks}
        position = program.position
        if program.recorder is not None:
            actions = _recorded(self, actions, program.recorder)
        else:
            actions = segmented(actions, position)
            only = actions[0][1]
            if len(actions) == 1 and isinstance(only, Segment):
                return only
            actions = [(number, most_direct(action)) for number, action in actions]

        def run() -> None:
            try:
                for number, action in actions:
                    position[THUNK] = number
                    action()
            except Exception as error:
                error.add_note(f"while running {names.get(number)} in {self.name}")
                raise

        return run


def _recorded(
    sequence: ThunkSequence, actions: Sequence[Numbered], recorder: StampsThunks
) -> list[Numbered]:
    """``actions`` with stamps between them: a list of calls costs less than calls around calls."""
    own = recorder.number(sequence)
    recorded = [(own, recorder.begins(own))]
    for thunk, numbered in zip(sequence.thunks, actions, strict=True):
        number = numbered[0]
        if isinstance(thunk, ThunkSequence):
            recorded += [numbered]  # which stamps for itself
        elif next(thunk.nested(), None) is None:
            recorded += [numbered, (number, recorder.ends(number))]
        else:
            begins, ends = recorder.begins(number), recorder.ends(number)
            recorded += [(number, begins), numbered, (number, ends)]
    return [*recorded, (own, recorder.ends(own))]
