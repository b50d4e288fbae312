"""Actions of a collective among GPUs as plain data: NCCL calls, copies, and a builder of both.

Data moves as bytes; only reductions have an element type.
"""

from __future__ import annotations

import math
from dataclasses import field
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class NcclType(IntEnum):
    """Element type of NCCL (ncclDataType_t). NCCL has the 8-bit floats since version 2.24."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11

    @property
    def num_bytes(self) -> int:
        """Return the size of an element in bytes."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Size of an element by number of the type."""


class NcclOperation(IntEnum):
    """Reduction of NCCL (ncclRedOp_t)."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3


_FLOAT8_SINCE = 22400
"""First NCCL version with 8-bit floats."""

_TYPES = {
    PrimitiveType.S8: NcclType.INT8,
    PrimitiveType.U8: NcclType.UINT8,
    PrimitiveType.S32: NcclType.INT32,
    PrimitiveType.U32: NcclType.UINT32,
    PrimitiveType.S64: NcclType.INT64,
    PrimitiveType.U64: NcclType.UINT64,
    PrimitiveType.F16: NcclType.FLOAT16,
    PrimitiveType.F32: NcclType.FLOAT32,
    PrimitiveType.F64: NcclType.FLOAT64,
    PrimitiveType.BF16: NcclType.BFLOAT16,
    PrimitiveType.F8E4M3FN: NcclType.FLOAT8E4M3,
    PrimitiveType.F8E5M2: NcclType.FLOAT8E5M2,
}
_OPERATIONS = {
    ReductionKind.SUM: NcclOperation.SUM,
    ReductionKind.PRODUCT: NcclOperation.PRODUCT,
    ReductionKind.MIN: NcclOperation.MIN,
    ReductionKind.MAX: NcclOperation.MAX,
}
#: Reductions of predicates, which are bytes of 0 or 1, as operations on unsigned 8-bit integers.
_OF_TRUTH = {
    ReductionKind.SUM: NcclOperation.MAX,
    ReductionKind.PRODUCT: NcclOperation.MIN,
    ReductionKind.MIN: NcclOperation.MIN,
    ReductionKind.MAX: NcclOperation.MAX,
    ReductionKind.AND: NcclOperation.MIN,
    ReductionKind.OR: NcclOperation.MAX,
}
_PAIRS_OF = {PrimitiveType.C64: NcclType.FLOAT32, PrimitiveType.C128: NcclType.FLOAT64}


@dataclass(frozen=True)
class NcclReduction:
    """Element type and operation by which NCCL reduces an array.

    ``parts`` is the number of NCCL elements for each element of the array: two for a complex number, otherwise one.
    """

    kind: NcclType
    operation: NcclOperation
    parts: int = 1


def nccl_reduction(
    dtype: np.dtype[Any], reduction: ReductionKind, version: int
) -> NcclReduction | str:
    """Return how NCCL reduces values of ``dtype``, or a sentence that says why it cannot.

    ``version`` is the number that ncclGetVersion gives, for example 23004 for 2.30.4.
    """
    element = PrimitiveType.from_numpy(dtype)
    if element is PrimitiveType.PRED and reduction in _OF_TRUTH:
        return NcclReduction(NcclType.UINT8, _OF_TRUTH[reduction])
    if element in _PAIRS_OF and reduction is ReductionKind.SUM:
        return NcclReduction(_PAIRS_OF[element], NcclOperation.SUM, parts=2)
    if reduction not in _OPERATIONS or element in _PAIRS_OF or element is PrimitiveType.PRED:
        return f"NCCL has no {reduction.value} of {element.value}"
    if element not in _TYPES:
        return f"NCCL has no type {element.value}"
    kind = _TYPES[element]
    if kind in (NcclType.FLOAT8E4M3, NcclType.FLOAT8E5M2) and version < _FLOAT8_SINCE:
        return f"NCCL {version_text(version)} has no type {element.value}: 2.24 has"
    return NcclReduction(kind, _OPERATIONS[reduction])


def version_text(version: int) -> str:
    """Return the text of NCCL's version number, for example "2.30.4" for 23004."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@dataclass(frozen=True)
class DeviceArray:
    """A row-major array in GPU memory: the address of its first byte, its element type and its shape."""

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self.size * self.dtype.itemsize

    def overlaps(self, other: DeviceArray) -> bool:
        """Return whether the two arrays have bytes in common."""
        return (
            self.pointer < other.pointer + other.nbytes
            and other.pointer < self.pointer + self.nbytes
        )


@dataclass(frozen=True)
class CopyRows:
    """Copy of ``rows`` rows of ``row_bytes`` bytes each (cudaMemcpy2D).

    Pitches are the bytes from the start of one row to the start of the next, at addresses ``target`` and ``source``.
    """

    target: int
    target_pitch: int
    source: int
    source_pitch: int
    row_bytes: int
    rows: int


@dataclass(frozen=True)
class Zero:
    """Fill of ``num_bytes`` bytes from address ``target`` on with zeros."""

    target: int
    num_bytes: int


@dataclass(frozen=True)
class AllReduceCall:
    """Call of ncclAllReduce on ``count`` elements."""

    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation


@dataclass(frozen=True)
class ReduceScatterCall:
    """Call of ncclReduceScatter, by which each member receives ``count`` elements."""

    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation


@dataclass(frozen=True)
class AllGatherCall:
    """Call of ncclAllGather, by which each member sends ``count`` bytes."""

    send: int
    receive: int
    count: int


@dataclass(frozen=True)
class BroadcastCall:
    """Call of ncclBroadcast, by which the first member sends ``count`` bytes to all."""

    send: int
    receive: int
    count: int


@dataclass(frozen=True)
class SendCall:
    """Call of ncclSend, which sends ``count`` bytes to member ``peer``."""

    source: int
    count: int
    peer: int


@dataclass(frozen=True)
class ReceiveCall:
    """Call of ncclRecv, which receives ``count`` bytes from member ``peer``."""

    target: int
    count: int
    peer: int


LocalAction: TypeAlias = CopyRows | Zero
NcclCall: TypeAlias = (
    AllReduceCall | ReduceScatterCall | AllGatherCall | BroadcastCall | SendCall | ReceiveCall
)


@dataclass(frozen=True)
class DeviceActions:
    """Actions of one rank, in the order in which they run.

    before: local actions that prepare what NCCL sends. calls: NCCL calls, issued as one group (ncclGroupStart). after:
    local actions that store what NCCL has received.
    """

    before: tuple[LocalAction, ...] = ()
    calls: tuple[NcclCall, ...] = ()
    after: tuple[LocalAction, ...] = ()


#: Scratch is reserved in multiples of this many bytes.
SCRATCH_ALIGNMENT = 256


# ---- builder
#
# NCCL concatenates and splits contiguous memory only. The part of a member along another dimension than the first is a
# *block*: a row for each index of the dimensions before it, at a constant pitch. It is copied to or from scratch.


@dataclass(frozen=True)
class Block:
    """Rows in GPU memory at a constant pitch: ``rows`` rows of ``row_bytes`` bytes, the first at address ``pointer``.

    ``pitch`` is the number of bytes from the start of one row to the start of the next.
    """

    pointer: int
    pitch: int
    row_bytes: int
    rows: int

    @staticmethod
    def of_array(array: DeviceArray) -> Block:
        """Return the entire array as a block of one row."""
        return Block(array.pointer, array.nbytes, array.nbytes, 1)

    @staticmethod
    def part(array: DeviceArray, index: int, count: int, dimension: int) -> Block:
        """Return the ``index``-th of ``count`` equal parts of ``array`` along ``dimension``."""
        rows = math.prod(array.shape[:dimension])
        pitch = array.nbytes // rows if rows else 0
        row_bytes = pitch // count
        return Block(array.pointer + index * row_bytes, pitch, row_bytes, rows)

    @staticmethod
    def parts(array: DeviceArray, count: int, dimension: int) -> list[Block]:
        """Return all of ``count`` equal parts of ``array`` along ``dimension``."""
        return [Block.part(array, index, count, dimension) for index in range(count)]

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of all rows, without the gaps between them."""
        return self.rows * self.row_bytes

    @property
    def is_dense(self) -> bool:
        """Return whether there are no gaps between rows."""
        return self.rows <= 1 or self.pitch == self.row_bytes

    def at(self, pointer: int) -> Block:
        """Return a block of as many rows of this size at address ``pointer``, without gaps."""
        return Block(pointer, self.row_bytes, self.row_bytes, self.rows)


@dataclass
class DeviceActionBuilder:
    """Builder of the actions of member ``index`` of ``count``.

    ``scratch`` is the address of the communicator's scratch, of which ``scratch_bytes`` bytes are reserved so far.
    """

    index: int
    count: int
    scratch: int
    scratch_bytes: int = 0
    before: list[LocalAction] = field(default_factory=list)
    calls: list[NcclCall] = field(default_factory=list)
    after: list[LocalAction] = field(default_factory=list)

    def actions(self) -> DeviceActions:
        """Return all actions added so far."""
        return DeviceActions(tuple(self.before), tuple(self.calls), tuple(self.after))

    def allocate_scratch(self, num_bytes: int) -> int:
        """Reserve ``num_bytes`` bytes of scratch that no other part of this collective uses. Returns their address."""
        start = self.scratch + self.scratch_bytes
        self.scratch_bytes += -(-num_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        return start

    def packed(self, block: Block, *, always: bool = False) -> int:
        """Return an address at which the bytes of ``block`` lie without gaps when NCCL is called.

        The block is copied to scratch if it has gaps, or ``always``.
        """
        if block.is_dense and not always:
            return block.pointer
        dense = block.at(self.allocate_scratch(block.nbytes))
        self.before += copied(block, dense)
        return dense.pointer


@dataclass(frozen=True)
class DeviceBuffers:
    """Operands and results of a collective on one GPU."""

    operands: tuple[DeviceArray, ...]
    results: tuple[DeviceArray, ...]

    @property
    def are_exchanged_in_place(self) -> bool:
        """Return whether some result overlaps some operand."""
        return any(map(self._is_written, self.operands))

    def is_lost(self, k: int, *, in_place: bool) -> bool:
        """Return whether operand ``k`` may be overwritten before it is read entirely, because a result overlaps it.

        in_place: the operand's own result may overlap it, as calls of NCCL in place allow.
        """
        own = [] if in_place else [self.results[k]]
        others = [*self.results[:k], *self.results[k + 1 :], *own]
        return any(result.overlaps(self.operands[k]) for result in others)

    def _is_written(self, operand: DeviceArray) -> bool:
        """Return whether a result overlaps ``operand``."""
        return any(result.overlaps(operand) for result in self.results)


def copied(source: Block, target: Block) -> list[CopyRows]:
    """Return the copy of ``source`` to ``target``; an empty list if no byte has to move.

    Both blocks have equally many bytes. If both have gaps, their rows have the same size.
    """
    if source.nbytes == 0 or source == target:
        return []
    if source.is_dense and target.is_dense:
        rows, row_bytes = 1, source.nbytes
    elif source.is_dense:
        rows, row_bytes = target.rows, target.row_bytes
    else:
        assert target.is_dense or target.row_bytes == source.row_bytes
        rows, row_bytes = source.rows, source.row_bytes
    source_pitch = row_bytes if source.is_dense else source.pitch
    target_pitch = row_bytes if target.is_dense else target.pitch
    return [CopyRows(target.pointer, target_pitch, source.pointer, source_pitch, row_bytes, rows)]
