"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


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
