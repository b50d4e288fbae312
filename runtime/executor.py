"""One device's run of a program: its memory, its thunks bound to it, inputs in, outputs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.interface import Communicator, Pending
from runtime.buffers.types import (
    ALIGNMENT,
    AllocationKind,
    ArrayView,
    BufferAllocation,
    BufferAssignment,
    aligned,
)
from runtime.kernel import KernelLibrary
from runtime.thunks.sequence import ThunkSequence
from runtime.thunks.thunk import Action, walk
from spmd.errors import RunError
from spmd.literal import NDArray
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class DeviceProgram:
    """What a device loads: plain data, the same for every device."""

    name: str
    thunks: ThunkSequence
    assignment: BufferAssignment
    #: Data of the constant allocations, by allocation index.
    constants: dict[int, NDArray]
    parameters: tuple[ArrayShape, ...]
    outputs: tuple[ArrayView, ...]
    num_partitions: int
    replica_count: int

    @property
    def num_devices(self) -> int:
        return self.num_partitions * self.replica_count


class DeviceMemory:
    """One block of bytes; every allocation at an aligned place in it."""

    def __init__(self, allocations: Sequence[BufferAllocation]) -> None:
        self._starts: list[int] = []
        size = 0
        for allocation in allocations:
            self._starts.append(size)
            size += aligned(allocation.size)
        block = np.zeros(size + ALIGNMENT, np.uint8)
        first = -block.ctypes.data % ALIGNMENT
        self._bytes = block[first : first + size]

    def array(self, place: ArrayView) -> NDArray:
        view = place.view
        start = self._starts[place.slice.allocation] + place.slice.offset + view.offset
        if view.num_elements == 0:
            return np.zeros(view.dims, view.element_type.numpy)
        return np.ndarray(view.dims, view.element_type.numpy, self._bytes, start, view.strides)

    def bytes_of(self, allocation: BufferAllocation) -> NDArray:
        start = self._starts[allocation.index]
        return self._bytes[start : start + allocation.size]


@dataclass
class LoadedDevice:
    """A program on one device, ready to run any number of times. Not thread-safe: one thread runs it."""

    program: DeviceProgram
    communicator: Communicator
    kernels: KernelLibrary
    memory: DeviceMemory = field(init=False)
    pending: dict[str, Pending] = field(default_factory=dict)
    _action: Action = field(init=False)
    _inputs: list[NDArray] = field(init=False)
    _outputs: list[NDArray] = field(init=False)

    def __post_init__(self) -> None:
        assignment = self.program.assignment
        if self.communicator.size != self.program.num_devices:
            raise RunError(
                f"{self.program.name} is for {self.program.num_devices} devices "
                f"({self.program.replica_count} replicas x {self.program.num_partitions} partitions), "
                f"found {self.communicator.size}"
            )
        self.memory = DeviceMemory(assignment.allocations)
        for allocation in assignment.of_kind(AllocationKind.CONSTANT):
            data = np.ascontiguousarray(self.program.constants[allocation.index])
            self.memory.bytes_of(allocation)[:] = data.reshape(-1).view(np.uint8)
        self._inputs = [
            self.memory.bytes_of(a) for a in assignment.of_kind(AllocationKind.PARAMETER)
        ]
        self._outputs = [self.array(place) for place in self.program.outputs]
        thunks = walk(self.program.thunks)
        self.communicator.prepare(dict.fromkeys(g for t in thunks for g in t.resource_uses()))
        self._action = self.program.thunks.prepare(self)

    @property
    def num_partitions(self) -> int:
        return self.program.num_partitions

    def array(self, place: ArrayView) -> NDArray:
        return self.memory.array(place)

    def run(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """One step on this device's shards; outputs are copies. RunError for arrays that do not fit."""
        self._take_inputs(arrays)
        self.pending.clear()
        with np.errstate(all="ignore"):  # infinities and nan are values here
            self._action()
        return [output.copy() for output in self._outputs]

    def _take_inputs(self, arrays: Sequence[NDArray]) -> None:
        shapes = self.program.parameters
        if len(arrays) != len(shapes):
            raise RunError(f"{self.program.name} takes {len(shapes)} arrays, found {len(arrays)}")
        for i, (array, shape, place) in enumerate(zip(arrays, shapes, self._inputs, strict=True)):
            if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
                raise RunError(
                    f"{self.program.name}: argument {i} is {array.dtype}{list(array.shape)} "
                    f"on device {self.communicator.rank}, expected {shape.without_layout()}"
                )
            place[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
