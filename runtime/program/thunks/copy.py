"""Bring a value to another place or into another layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


@dataclass(frozen=True)
class CopyThunk(Thunk):
    """``target`` holds the value of ``source`` afterwards. ``name``: the instruction that needs it there."""

    source: ArrayView
    target: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.source, Role.OPERAND)
        yield BufferUse(UseKind.WRITE, self.target, Role.RESULT)
