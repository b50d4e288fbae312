"""Thunks one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.program.thunks.thunk import BufferUse, Thunk


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """Thunks of a computation, in schedule order. ``name``: that of the computation."""

    thunks: tuple[Thunk, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        return iter(())

    def nested(self) -> Iterator[Thunk]:
        return iter(self.thunks)

    @property
    def is_composite(self) -> bool:
        """True, even if the sequence is empty."""
        return True
