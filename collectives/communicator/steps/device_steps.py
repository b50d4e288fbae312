"""Steps of one rank for a collective among GPUs, as plain data: copies on its GPU, and calls of NCCL in groups.

Addresses are final; a stream and a communicator come with each run (``nccl/enqueue.py``). Collectives follow each other
on a GPU, so all use the same scratch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.steps.nccl_types import NcclOperation, NcclType


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


LocalStep: TypeAlias = CopyRows | Zero
NcclCall: TypeAlias = (
    AllReduceCall | ReduceScatterCall | AllGatherCall | BroadcastCall | SendCall | ReceiveCall
)


@dataclass(frozen=True)
class DeviceSteps:
    """In this order: what is laid out for NCCL, its calls in one group, what is put where it belongs."""

    before: tuple[LocalStep, ...] = ()
    calls: tuple[NcclCall, ...] = ()
    after: tuple[LocalStep, ...] = ()
