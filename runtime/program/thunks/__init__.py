"""Thunks: what a device does, one frozen record per action, with the memory that it reads and writes.

Those that need the host are in feed.py and callback.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum

from collectives.communicator.kinds.op import CollectiveOp
from runtime.arrays.host_feed import FeedSite
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


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


# ---- sequences and control flow


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


# ---- kernels and copies


@dataclass(frozen=True)
class KernelThunk(Thunk):
    """One kernel call: matrix products, loops, reductions, slices, and the library functions behind rare ones."""

    kernel: Kernel
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    scratch: tuple[ArrayView, ...] = ()

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.SCRATCH, self.scratch)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class CopyThunk(Thunk):
    """Copy of ``source`` to ``target``. ``name``: the instruction that needs the copy."""

    source: ArrayView
    target: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.source, Role.OPERAND)
        yield BufferUse(UseKind.WRITE, self.target, Role.RESULT)


# ---- the device's own number


@dataclass(frozen=True)
class PartitionIdThunk(Thunk):
    """Write the partition's number, u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)


@dataclass(frozen=True)
class ReplicaIdThunk(Thunk):
    """Write the replica's number, u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)


# ---- collectives: a blocking one is a start directly followed by its done


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


# ---- values of the host


@dataclass(frozen=True)
class InfeedThunk(Thunk):
    """Write the next value that the host feeds this device."""

    site: FeedSite
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class OutfeedThunk(Thunk):
    """Give the host a value of this device."""

    site: FeedSite
    operands: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
