"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runtime.cpu.step.segment import Segment, joined, segment_of, stamping
from runtime.program.thunks.collective import CollectiveStartThunk
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Thunk


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """``name`` is the computation's."""

    thunks: tuple[Thunk, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())

    def nested(self) -> Iterator[Thunk]:
        return iter(self.thunks)

    @property
    def is_composite(self) -> bool:
        """Even if it is empty."""
        return True

    def prepare(self, program: LoadedProgram) -> Segment:
        return joined(_stamped(self, self._segments(program), program))

    def _segments(self, program: LoadedProgram) -> Iterator[Segment]:
        for thunk in self.thunks:
            number = program.number_of(thunk)
            own = segment_of(number, thunk.prepare(program))
            if not isinstance(thunk, ThunkSequence):  # which stamps for itself
                own = joined(_stamped(thunk, [own], program))
            within = f"{thunk.name} in {self.name}"
            yield own.inside(within)
            if isinstance(thunk, CollectiveStartThunk) and program.blocking is not None:
                yield thunk.wait_if_blocking(program, program.blocking).inside(within)


def _stamped(
    thunk: Thunk, segments: Iterable[Segment], program: LoadedProgram
) -> Iterator[Segment]:
    """``segments``, which are ``thunk``, and stamps that tell when it runs where there is a recorder."""
    recorder, number = program.recorder, program.number_of(thunk)
    if recorder is not None and thunk.is_composite:
        yield stamping(number, recorder.begins(thunk))
    yield from segments
    if recorder is not None:
        yield stamping(number, recorder.ends(thunk))
