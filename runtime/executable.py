"""Executable: a compiled program, and how to run it on devices of this process or as one rank of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.interface import Communicator
from runtime.blas import set_blas_threads
from runtime.buffers.dump import dump_assignment
from runtime.buffers.types import MemoryStats
from runtime.executor import DeviceProgram, LoadedDevice
from runtime.kernel import KernelLibrary
from runtime.loopback import LoopbackDevices
from runtime.shard_arrays import gather, shard_of
from runtime.thunks.dump import dump_thunks
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import walk
from spmd.errors import RunError
from spmd.hlo import HloModule
from spmd.literal import NDArray
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Boundary:
    """One array as the caller sees it: its global shape, and how devices share it (None: every one holds it all)."""

    shape: ArrayShape
    sharding: HloSharding | None


@dataclass(frozen=True)
class ShardedArrays:
    """Arrays as tiles: ``tiles[device][i]``. Made by ``Executable.put``; a run takes them and returns them."""

    tiles: tuple[tuple[NDArray, ...], ...]


@dataclass
class Executable:
    """A program for ``num_devices`` devices. ``module`` is the scheduled module it was made of.

    ``inputs`` and ``outputs`` say how global arrays become tiles and back.
    """

    module: HloModule
    program: DeviceProgram
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    kernels: KernelLibrary
    compile_seconds: dict[str, float] = field(default_factory=dict)
    _local: LoopbackDevices | None = None

    @property
    def num_devices(self) -> int:
        return self.program.num_devices

    @property
    def stats(self) -> MemoryStats:
        """Memory of one device, in bytes."""
        return self.program.assignment.stats

    @property
    def kernel_count(self) -> int:
        """Kernel calls in the program, each counted once however often a loop runs it."""
        return sum(isinstance(thunk, KernelThunk) for thunk in walk(self.program.thunks))

    def dump_buffers(self) -> str:
        return dump_assignment(self.program.assignment)

    def dump_thunks(self) -> str:
        return dump_thunks(self.program.thunks)

    # ---- one rank of many
    def load(self, communicator: Communicator) -> LoadedDevice:
        """This rank's device. RunError when the world has another size than the program.

        Among several devices, this process's matrix products keep to one thread from here on.
        """
        if communicator.size > 1:
            set_blas_threads(1)
        return LoadedDevice(self.program, communicator, self.kernels)

    # ---- all devices in this process
    def run(self, *arrays: NDArray | ShardedArrays) -> list[NDArray] | ShardedArrays:
        """One step on global arrays (or on ``ShardedArrays``, which gives such back).

        RunError when arrays do not fit. A failing device's error is raised as it is.
        """
        if len(arrays) == 1 and isinstance(arrays[0], ShardedArrays):
            return ShardedArrays(tuple(map(tuple, self.run_devices(arrays[0].tiles))))
        tiles = self.put([np.asarray(array) for array in arrays]).tiles
        return self.get(ShardedArrays(tuple(map(tuple, self.run_devices(tiles)))))

    def put(self, arrays: Sequence[NDArray]) -> ShardedArrays:
        """Divide global arrays among the devices."""
        if len(arrays) != len(self.inputs):
            raise RunError(
                f"{self.program.name} takes {len(self.inputs)} arrays, found {len(arrays)}"
            )
        for i, (array, boundary) in enumerate(zip(arrays, self.inputs, strict=True)):
            shape = boundary.shape
            if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
                raise RunError(
                    f"{self.program.name}: argument {i} is {array.dtype}{list(array.shape)}, "
                    f"expected {shape.without_layout()}"
                )
        partitions = self.program.num_partitions
        return ShardedArrays(
            tuple(
                tuple(
                    shard_of(array, boundary.sharding, boundary.shape, device % partitions)
                    for array, boundary in zip(arrays, self.inputs, strict=True)
                )
                for device in range(self.num_devices)
            )
        )

    def get(self, outputs: ShardedArrays) -> list[NDArray]:
        """Global arrays from a run's outputs; with replicas, those of replica 0."""
        tiles = outputs.tiles[: self.program.num_partitions]
        return [
            gather([device[i] for device in tiles], boundary.sharding, boundary.shape)
            for i, boundary in enumerate(self.outputs)
        ]

    def run_devices(self, per_device: Sequence[Sequence[NDArray]]) -> list[list[NDArray]]:
        """One step on every device's own arrays; device = replica * num_partitions + partition."""
        if self._local is None:
            self._local = LoopbackDevices(self.program, self.kernels)
        local, self._local = self._local, None
        outputs = local.run(per_device)
        self._local = local  # devices whose run failed are not used again
        return outputs
