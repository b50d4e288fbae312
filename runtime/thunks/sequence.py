"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.thunks.segment import Segment, joined, segment_of, stamping
from runtime.thunks.thunk import BufferUse, LoadedProgram, StampsThunks, Thunk


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """``name`` is the computation's."""

    thunks: tuple[Thunk, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())

    def nested(self) -> Iterator[Thunk]:
        return iter(self.thunks)

    def prepare(self, program: LoadedProgram) -> Segment:
        segments = [(thunk, self._segment(program, thunk)) for thunk in self.thunks]
        if program.recorder is not None:
            return joined(_recorded(self, segments, program.recorder))
        return joined(segment for _, segment in segments)

    def _segment(self, program: LoadedProgram, thunk: Thunk) -> Segment:
        segment = segment_of(program.number_of(thunk), thunk.prepare(program))
        return segment.inside(f"{thunk.name} in {self.name}")


def _recorded(
    sequence: ThunkSequence, segments: list[tuple[Thunk, Segment]], recorder: StampsThunks
) -> Iterator[Segment]:
    """``segments`` with stamps between them."""
    own = recorder.number(sequence)
    yield stamping(own, recorder.begins(own))
    for thunk, segment in segments:
        number = recorder.number(thunk)
        if isinstance(thunk, ThunkSequence):
            yield segment  # which stamps for itself
        elif next(thunk.nested(), None) is None:
            yield segment
            yield stamping(number, recorder.ends(number))
        else:
            yield stamping(number, recorder.begins(number))
            yield segment
            yield stamping(number, recorder.ends(number))
    yield stamping(own, recorder.ends(own))
