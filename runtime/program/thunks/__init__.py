"""Thunks: frozen records of the actions of a device's program, with the memory that each reads and writes.

Thunks correspond to XLA's thunks. The thunk of Python callbacks is in callback.py.
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
    """Kind of access to a buffer."""

    READ = "read"
    WRITE = "write"


class Role(Enum):
    """Role of an array for the HLO instruction of a thunk: leaf of its operands, leaf of its result, or scratch."""

    OPERAND = "operand"
    RESULT = "result"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class BufferUse:
    """Read or write of ``array`` by a thunk, as array leaf ``leaf`` of ``role``.

    An array that is updated in place has a read and a write.
    """

    kind: UseKind
    array: ArrayView
    role: Role
    leaf: int = 0

    @property
    def slice(self) -> BufferSlice:
        """Slice of an allocation that contains the array."""
        return self.array.slice


@dataclass(frozen=True)
class Thunk(ABC):
    """Action of a device. ``name`` is the name of its HLO instruction, for messages, profiles and the checkers."""

    name: str

    @abstractmethod
    def buffer_uses(self) -> Iterator[BufferUse]:
        """Yield every read and write of the thunk itself, without those of nested thunks."""

    def nested(self) -> Iterator[Thunk]:
        """Yield the thunks that this thunk directly contains."""
        return iter(())

    @property
    def is_composite(self) -> bool:
        """True if the thunk contains other thunks. A timeline then records its begin in addition to its end."""
        return next(self.nested(), None) is not None


def uses(kind: UseKind, role: Role, arrays: tuple[ArrayView, ...]) -> Iterator[BufferUse]:
    """Return an access of ``kind`` to each of ``arrays``, which are leaves 0, 1, ... of ``role``."""
    return (BufferUse(kind, array, role, leaf) for leaf, array in enumerate(arrays))


def traverse(thunk: Thunk) -> Iterator[Thunk]:
    """Yield ``thunk`` and, recursively, the thunks that it contains, each one before its parts.

    The position of a thunk in this order is its number in timelines and status reports.
    """
    yield thunk
    for inner in thunk.nested():
        yield from traverse(inner)


# ---- sequences and control flow


@dataclass(frozen=True)
class ThunkSequence(Thunk):
    """Thunks of a computation in schedule order. ``name`` is the name of the computation."""

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
    """HLO while loop: runs ``condition`` and, while ``predicate`` is true, ``body`` and ``condition`` again.

    body: ends with copies of the new state to the slices of the state. state: (leaf number, array) of the leaves of the
    loop's state, without leaves that the loop does not change. trips: trip count, or None if it is unknown.
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
    """HLO conditional: runs the branch that ``selector`` selects.

    A pred selects branch 0 if it is true, else branch 1. An s32 is the index of the branch; an index out of range
    selects the last branch. Each branch ends with copies of its results to ``results``.
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
    """Call of ``kernel`` on slices of the program's allocations."""

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
    """Copy of ``source`` to ``target``. ``name`` is the name of the instruction that needs the copy."""

    source: ArrayView
    target: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.READ, self.source, Role.OPERAND)
        yield BufferUse(UseKind.WRITE, self.target, Role.RESULT)


# ---- the device's own number


@dataclass(frozen=True)
class PartitionIdThunk(Thunk):
    """Write of the device's partition id, a u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)


@dataclass(frozen=True)
class ReplicaIdThunk(Thunk):
    """Write of the device's replica id, a u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)


# ---- collectives: a synchronous collective is a start that is directly followed by its done


@dataclass(frozen=True)
class CollectiveStartThunk(Thunk):
    """Start of a collective. Until its done, operands must not be written, and results must not be read or written."""

    op: CollectiveOp
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class CollectiveDoneThunk(Thunk):
    """Wait for the collective whose start has the name ``start``. Afterwards ``results`` are valid."""

    start: str
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        """Yield nothing, since the uses of the start last until the done."""
        return iter(())


# ---- values of the host


@dataclass(frozen=True)
class InfeedThunk(Thunk):
    """Infeed: writes this device's tile of the next value of the host's infeed to ``results``."""

    site: FeedSite
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class OutfeedThunk(Thunk):
    """Outfeed: passes ``operands``, this device's tile of a value, to the host."""

    site: FeedSite
    operands: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
