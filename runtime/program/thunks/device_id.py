"""Thunks of the device's own number: partition-id and replica-id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind


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
