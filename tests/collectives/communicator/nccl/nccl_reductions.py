"""NCCL's collectives by its documentation, on the host's memory, run when all members have called."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from collectives.communicator.actions.device_actions import NcclOperation, NcclType
from tests.collectives.communicator.nccl.host_device import memory_at

DTYPES = {
    NcclType.INT8: np.int8,
    NcclType.UINT8: np.uint8,
    NcclType.INT32: np.int32,
    NcclType.UINT32: np.uint32,
    NcclType.INT64: np.int64,
    NcclType.UINT64: np.uint64,
    NcclType.FLOAT16: np.float16,
    NcclType.FLOAT32: np.float32,
    NcclType.FLOAT64: np.float64,
    NcclType.BFLOAT16: ml_dtypes.bfloat16,
    NcclType.FLOAT8E4M3: ml_dtypes.float8_e4m3fn,
    NcclType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
}
FUNCTIONS = {
    NcclOperation.SUM: np.add,
    NcclOperation.PRODUCT: np.multiply,
    NcclOperation.MAX: np.maximum,
    NcclOperation.MIN: np.minimum,
}


def num_bytes_of(count: int, kind: NcclType) -> int:
    return count * np.dtype(DTYPES[kind]).itemsize


@dataclass
class Call:
    """Call of one member in a collective of a communicator."""

    function: str
    count: int
    kind: NcclType
    operation: NcclOperation | None
    root: int | None
    send: int
    receive: int

    @property
    def form(self) -> tuple[object, ...]:
        return self.function, self.count, self.kind, self.operation, self.root


def carry_out(calls: list[Call]) -> None:
    """A collective whose members are all here: operands are read, then results written."""
    first = calls[0]
    assert all(call.form == first.form for call in calls), [call.form for call in calls]
    dtype = np.dtype(DTYPES[first.kind])
    count, n = first.count, len(calls)
    if first.function == "broadcast":
        assert first.root is not None
        data = memory_at(calls[first.root].send, count * dtype.itemsize).copy()
        for call in calls:
            memory_at(call.receive, data.nbytes)[:] = data
        return
    sent = count * (n if first.function == "reduce_scatter" else 1)
    values = [memory_at(call.send, sent * dtype.itemsize).copy().view(dtype) for call in calls]
    if first.function == "all_gather":
        joined = np.concatenate(values).view(np.uint8)
        for index, call in enumerate(calls):
            _require_in_place(call.send, call.receive, values[0].nbytes, joined.nbytes, index)
            memory_at(call.receive, joined.nbytes)[:] = joined
        return
    assert first.operation is not None
    total = _reduced(values, first.operation).view(np.uint8)
    for index, call in enumerate(calls):
        part = total
        if first.function == "reduce_scatter":
            part = np.split(total, n)[index]
            _require_in_place(call.receive, call.send, part.nbytes, total.nbytes, index)
        memory_at(call.receive, part.nbytes)[:] = part


def _require_in_place(
    small: int, large: int, small_bytes: int, large_bytes: int, index: int
) -> None:
    """NCCL allows the one on the other at the member's own place alone."""
    if small < large + large_bytes and large < small + small_bytes:
        assert small == large + index * small_bytes, "half in place"


def _reduced(values: list[np.ndarray], operation: NcclOperation) -> np.ndarray:
    """Reduce in group order, narrow floats in f32 with one rounding.

    NCCL may use other orders and roundings.
    """
    dtype = values[0].dtype
    is_narrow = dtype.itemsize < 4 and dtype.kind not in "iu"
    with np.errstate(all="ignore"):
        total = values[0].astype(np.float32) if is_narrow else values[0].copy()
        for value in values[1:]:
            total = FUNCTIONS[operation](total, value.astype(np.float32) if is_narrow else value)
        return total.astype(dtype)
