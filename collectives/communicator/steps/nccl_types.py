"""NCCL's types and operations, and the reductions that it has: by which type and operation, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from spmd.device import ReductionKind
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
