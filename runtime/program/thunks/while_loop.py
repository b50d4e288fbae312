"""Repeat a sequence while a condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


@dataclass(frozen=True)
class WhileThunk(Thunk):
    """Loop: run ``condition``; while ``predicate`` is true, run ``body`` and ``condition``.

    ``body`` ends with the copies of new values to the state's slices. ``state``: pairs (number, array) of the leaves of
    the loop's state, without those that no trip changes. ``trips``: trip count; None if it is unknown.
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
