"""Actions of a collective among GPUs as plain data: calls of NCCL, copies, and the builder that makes them.

Elements move as bytes; only reductions know types.
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
    """ncclDataType_t; the 8-bit floats since 2.24."""

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
        return _TYPE_BYTES[self]


_TYPE_BYTES = dict(zip(NcclType, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1), strict=True))


class NcclOperation(IntEnum):
    """ncclRedOp_t."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3


_FLOAT8_SINCE = 22400
"""NCCL's version from which on it has 8-bit floats."""

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
#: Of 0 and 1, a byte each.
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
    """``parts``: elements of ``kind`` that make one of the array's: two for a complex number."""

    kind: NcclType
    operation: NcclOperation
    parts: int = 1


def nccl_reduction(
    dtype: np.dtype[Any], reduction: ReductionKind, version: int
) -> NcclReduction | str:
    """Return how NCCL of ``version`` reduces values of ``dtype``, or a sentence that says why it cannot."""
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
    """23004 is 2.30.4."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@dataclass(frozen=True)
class DeviceArray:
    """A row-major array in a GPU's memory: where it begins, and what it is."""

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def overlaps(self, other: DeviceArray) -> bool:
        return (
            self.pointer < other.pointer + other.nbytes
            and other.pointer < self.pointer + self.nbytes
        )


@dataclass(frozen=True)
class CopyRows:
    """``rows`` rows of ``row_bytes`` bytes; pitches: bytes from one row's begin to the next one's."""

    target: int
    target_pitch: int
    source: int
    source_pitch: int
    row_bytes: int
    rows: int


@dataclass(frozen=True)
class Zero:
    """``num_bytes`` of zeros from ``target`` on."""

    target: int
    num_bytes: int


@dataclass(frozen=True)
class AllReduceCall:
    """ncclAllReduce of ``count`` elements."""

    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation


@dataclass(frozen=True)
class ReduceScatterCall:
    """ncclReduceScatter; ``count`` elements are received."""

    send: int
    receive: int
    count: int
    kind: NcclType
    operation: NcclOperation


@dataclass(frozen=True)
class AllGatherCall:
    """ncclAllGather; ``count`` bytes are sent."""

    send: int
    receive: int
    count: int


@dataclass(frozen=True)
class BroadcastCall:
    """ncclBroadcast of ``count`` bytes from the first member."""

    send: int
    receive: int
    count: int


@dataclass(frozen=True)
class SendCall:
    """ncclSend of ``count`` bytes to member ``peer``."""

    source: int
    count: int
    peer: int


@dataclass(frozen=True)
class ReceiveCall:
    """ncclRecv of ``count`` bytes from member ``peer``."""

    target: int
    count: int
    peer: int


LocalAction: TypeAlias = CopyRows | Zero
NcclCall: TypeAlias = (
    AllReduceCall | ReduceScatterCall | AllGatherCall | BroadcastCall | SendCall | ReceiveCall
)


@dataclass(frozen=True)
class DeviceActions:
    """In this order: what is laid out for NCCL, its calls in one group, what is put where it belongs."""

    before: tuple[LocalAction, ...] = ()
    calls: tuple[NcclCall, ...] = ()
    after: tuple[LocalAction, ...] = ()


# ---- builder


SCRATCH_ALIGNMENT = 256


# ---- builder
#
# NCCL joins and cuts whole pieces of memory. Along a dimension that is not the first one, what belongs to a member is a
# *block*: as many rows as all dimensions before it have elements, each at a pitch. It is copied to or from scratch.


@dataclass(frozen=True)
class Block:
    """``rows`` rows of ``row_bytes`` bytes from ``pointer`` on, ``pitch`` bytes from one to the next."""

    pointer: int
    pitch: int
    row_bytes: int
    rows: int

    @staticmethod
    def of_array(array: DeviceArray) -> Block:
        return Block(array.pointer, array.nbytes, array.nbytes, 1)

    @staticmethod
    def part(array: DeviceArray, index: int, count: int, dimension: int) -> Block:
        """The ``index``-th of ``count`` equal parts along ``dimension``."""
        rows = math.prod(array.shape[:dimension])
        pitch = array.nbytes // rows if rows else 0
        row_bytes = pitch // count
        return Block(array.pointer + index * row_bytes, pitch, row_bytes, rows)

    @staticmethod
    def parts(array: DeviceArray, count: int, dimension: int) -> list[Block]:
        """Return all of ``count`` equal parts along ``dimension``."""
        return [Block.part(array, index, count, dimension) for index in range(count)]

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def is_dense(self) -> bool:
        return self.rows <= 1 or self.pitch == self.row_bytes

    def at(self, pointer: int) -> Block:
        """Return a block of the same rows at ``pointer``, without gaps."""
        return Block(pointer, self.row_bytes, self.row_bytes, self.rows)


@dataclass
class DeviceActionBuilder:
    """Actions as they are put together. ``scratch``: where this communicator's begins; ``scratch_bytes``: used of it so
    far.
    """

    index: int
    count: int
    scratch: int
    scratch_bytes: int = 0
    before: list[LocalAction] = field(default_factory=list)
    calls: list[NcclCall] = field(default_factory=list)
    after: list[LocalAction] = field(default_factory=list)

    def actions(self) -> DeviceActions:
        return DeviceActions(tuple(self.before), tuple(self.calls), tuple(self.after))

    def allocate_scratch(self, num_bytes: int) -> int:
        """Address of scratch that this collective has for itself."""
        start = self.scratch + self.scratch_bytes
        self.scratch_bytes += -(-num_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        return start

    def packed(self, block: Block, *, always: bool = False) -> int:
        """Return the address at which the block's bytes lie without gaps before NCCL is called; copies if necessary."""
        if block.is_dense and not always:
            return block.pointer
        dense = block.at(self.allocate_scratch(block.nbytes))
        self.before += copied(block, dense)
        return dense.pointer


@dataclass(frozen=True)
class DeviceBuffers:
    operands: tuple[DeviceArray, ...]
    results: tuple[DeviceArray, ...]

    @property
    def are_exchanged_in_place(self) -> bool:
        """Return whether some result lies on some operand."""
        return any(map(self._is_written, self.operands))

    def is_lost(self, k: int, *, in_place: bool) -> bool:
        """Return whether operand ``k`` is written before all is read.

        in_place: whether its own result may lie where it does.
        """
        own = [] if in_place else [self.results[k]]
        others = [*self.results[:k], *self.results[k + 1 :], *own]
        return any(result.overlaps(self.operands[k]) for result in others)

    def _is_written(self, operand: DeviceArray) -> bool:
        return any(result.overlaps(operand) for result in self.results)


def copied(source: Block, target: Block) -> list[CopyRows]:
    """Nothing where there is nothing to copy. As many bytes each; unless one is dense, as many rows, too."""
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
