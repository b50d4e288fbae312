"""Start of a collective, and the wait for it. A blocking collective is a start directly followed by its done.

Kinds differ in the ``Collective`` that ``CollectiveOp`` makes for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.types import ArrayView
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind, uses


@dataclass(frozen=True)
class CollectiveStartThunk(Thunk):
    """Begin a collective; from here to its done, operands are not to be written, nor results touched."""

    op: CollectiveOp
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class CollectiveDoneThunk(Thunk):
    """Wait for the collective of thunk ``start``, which writes ``results``."""

    start: str
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        """Yield nothing: the uses of the start last until the done."""
        return iter(())
