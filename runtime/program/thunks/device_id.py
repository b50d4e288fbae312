"""Which device this is: partition-id and replica-id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.step.segment import Action
from runtime.program.thunks.thunk import BufferUse, LoadedProgram, Role, Thunk, UseKind


@dataclass(frozen=True)
class PartitionIdThunk(Thunk):
    """Write the partition's number, u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)

    def prepare(self, program: LoadedProgram) -> Action:
        return _filling(program, self.result, program.communicator.rank % program.num_partitions)


@dataclass(frozen=True)
class ReplicaIdThunk(Thunk):
    """Write the replica's number, u32."""

    result: ArrayView

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield BufferUse(UseKind.WRITE, self.result, Role.RESULT)

    def prepare(self, program: LoadedProgram) -> Action:
        return _filling(program, self.result, program.communicator.rank // program.num_partitions)


def _filling(program: LoadedProgram, place: ArrayView, number: int) -> Action:
    array = program.array(place)
    return copying(np.array(number, array.dtype), array)
