"""Copy a value to another slice or into another layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


@dataclass(frozen=True)
class CopyThunk(Thunk):
    """Copy of ``source`` to ``target``. ``name``: the instruction that needs the copy."""

    source: ArrayView
    target: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.source, Role.OPERAND)
        yield BufferUse(UseKind.WRITE, self.target, Role.RESULT)
