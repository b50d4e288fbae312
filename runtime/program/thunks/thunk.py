"""Thunk: the base record of an action, and what it says of memory."""

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
    """A thunk reads or writes ``array`` as leaf ``leaf`` of ``role``. In-place results list a read and a write."""

    kind: UseKind
    array: ArrayView
    role: Role
    leaf: int = 0

    @property
    def slice(self) -> BufferSlice:
        return self.array.slice


@dataclass(frozen=True)
class Thunk(ABC):
    """``name`` is the HLO instruction's, for messages, profiles and the checkers."""

    name: str

    @abstractmethod
    def buffer_uses(self) -> Iterator[BufferUse]:
        """Every slice it reads or writes itself; nested thunks list their own."""

    def nested(self) -> Iterator[Thunk]:
        """Thunks that run as part of this one."""
        return iter(())

    @property
    def is_composite(self) -> bool:
        """Whether others run as part of it: a timeline then has when it begins."""
        return next(self.nested(), None) is not None


def uses(kind: UseKind, role: Role, arrays: tuple[ArrayView, ...]) -> Iterator[BufferUse]:
    return (BufferUse(kind, array, role, leaf) for leaf, array in enumerate(arrays))


def traverse(thunk: Thunk) -> Iterator[Thunk]:
    """The thunk and all that run as part of it, in order."""
    yield thunk
    for inner in thunk.nested():
        yield from traverse(inner)
