"""Run one of several sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


@dataclass(frozen=True)
class ConditionalThunk(Thunk):
    """``selector`` chooses: a pred takes branch 0 when true; an index out of range takes the last branch.

    Branches end with the copies that bring their results to ``results``.
    """

    selector: ArrayView
    branches: tuple[ThunkSequence, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.selector, Role.OPERAND)

    def nested(self) -> Iterator[Thunk]:
        return iter(self.branches)
