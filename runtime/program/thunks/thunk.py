"""Thunk: the base record of an action, with the memory that it reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from runtime.buffers.types import ArrayView, BufferSlice


class UseKind(Enum):
    READ = "read"
    WRITE = "write"


class Role(Enum):
    """Role of bytes for the instruction: array leaf n of its operands, array leaf n of its result, or scratch."""

    OPERAND = "operand"
    RESULT = "result"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class BufferUse:
    """Read or write of ``array`` by a thunk, as leaf ``leaf`` of ``role``. In-place results have a read and a write."""

    kind: UseKind
    array: ArrayView
    role: Role
    leaf: int = 0

    @property
    def slice(self) -> BufferSlice:
        return self.array.slice


@dataclass(frozen=True)
class Thunk(ABC):
    """Entry of a thunk sequence. ``name``: that of the HLO instruction, for messages, profiles and the checkers."""

    name: str

    @abstractmethod
    def buffer_uses(self) -> Iterator[BufferUse]:
        """Yield every slice that the thunk itself reads or writes. Nested thunks list their own."""

    def nested(self) -> Iterator[Thunk]:
        """Return the thunks that run as part of this one."""
        return iter(())

    @property
    def is_composite(self) -> bool:
        """True if other thunks run as part of this one. A timeline then also has the time of its begin."""
        return next(self.nested(), None) is not None


def uses(kind: UseKind, role: Role, arrays: tuple[ArrayView, ...]) -> Iterator[BufferUse]:
    return (BufferUse(kind, array, role, leaf) for leaf, array in enumerate(arrays))


def traverse(thunk: Thunk) -> Iterator[Thunk]:
    """Yield ``thunk`` and all thunks that run as part of it, in order."""
    yield thunk
    for inner in thunk.nested():
        yield from traverse(inner)
