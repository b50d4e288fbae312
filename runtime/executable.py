"""Executable: a compiled program, and how to run it on devices of this process or as one rank of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

import numpy as np

from collectives.communicator.interface import Communicator
from runtime.blas import set_blas_threads
from runtime.buffers.dump import dump_assignment
from runtime.buffers.types import MemoryStats
from runtime.executor import DeviceProgram, LoadedDevice
from runtime.kernel import KernelLibrary
from runtime.loopback import LoopbackDevices
from runtime.shard_arrays import gather as gather_tiles
from runtime.shard_arrays import shard_of
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
    """Arrays as tiles on this process's devices: ``tiles[d][i]`` belongs to a global array ``boundaries[i]``.

    ``Executable.put`` makes them; a run takes them and returns them. Slices and sums choose and join arrays:
    ``state = executable.run(state)[:2] + batch``.
    """

    tiles: tuple[tuple[NDArray, ...], ...]
    boundaries: tuple[Boundary, ...]

    def __len__(self) -> int:
        return len(self.boundaries)

    def __getitem__(self, which: slice) -> ShardedArrays:
        return ShardedArrays(tuple(own[which] for own in self.tiles), self.boundaries[which])

    def __add__(self, other: ShardedArrays) -> ShardedArrays:
        tiles = zip(self.tiles, other.tiles, strict=True)
        return ShardedArrays(tuple(a + b for a, b in tiles), self.boundaries + other.boundaries)


Gather = Literal["first", "all"]
"""Which processes get global arrays: the one of device 0, or all. One process with all devices always gets them."""


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

    @property
    def devices(self) -> range:
        """The devices whose tiles this process holds; here all of them."""
        return range(self.num_devices)

    # ---- one step
    @overload
    def run(self, state: ShardedArrays, /) -> ShardedArrays: ...
    @overload
    def run(
        self, *arrays: NDArray, gather: Gather = "first", sharded: bool = False
    ) -> list[NDArray]: ...
    def run(
        self,
        *arrays: NDArray | ShardedArrays,
        gather: Gather = "first",
        sharded: bool = False,
    ) -> list[NDArray] | ShardedArrays:
        """One step on global arrays, giving global arrays (see ``Gather``; an empty list where there are none).

        On ``ShardedArrays`` it gives such, and nothing is gathered. With ``sharded``, a process that holds one device
        passes that device's tiles and gets its tiles. RunError when arrays do not fit. A failing device's error is
        raised as it is.
        """
        first = arrays[0] if arrays else None
        if isinstance(first, ShardedArrays):
            return self._run_tiles(self.fit(first).tiles)
        self._require_count(len(arrays))
        given = [np.asarray(array) for array in arrays]
        if not sharded:
            return self.get(self._run_tiles(self.put(given).tiles), gather)
        if len(self.devices) != 1:
            raise RunError(
                f"sharded=True passes the tiles of one device, this process runs {len(self.devices)}: "
                "use put, or run_devices with the tiles of each"
            )
        return list(self._run_tiles((tuple(given),)).tiles[0])

    def _run_tiles(self, tiles: Sequence[Sequence[NDArray]]) -> ShardedArrays:
        return ShardedArrays(tuple(map(tuple, self.run_devices(tiles))), self.outputs)

    def put(self, arrays: Sequence[NDArray], first: int = 0) -> ShardedArrays:
        """Divide global arrays for inputs ``first``, ``first`` + 1, ... among the devices.

        RunError for arrays that do not fit.
        """
        if first + len(arrays) > len(self.inputs):
            self._require_count(first + len(arrays))
        boundaries = self.inputs[first : first + len(arrays)]
        for i, (array, boundary) in enumerate(zip(arrays, boundaries, strict=True), first):
            shape = boundary.shape
            if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
                raise RunError(
                    f"{self.program.name}: argument {i} is {array.dtype}{list(array.shape)}, "
                    f"expected {shape.without_layout()}"
                )
        return self._divide(arrays, boundaries)

    def fit(self, state: ShardedArrays) -> ShardedArrays:
        """``state`` divided as the inputs are; an array that is divided otherwise is gathered and divided again."""
        self._require_count(len(state))
        if state.boundaries == self.inputs:
            return state
        fitted = ShardedArrays(tuple(() for _ in self.devices), ())
        for i, boundary in enumerate(self.inputs):
            one = state[i : i + 1]
            if one.boundaries != (boundary,):
                one = self.put(self.get(one, "all"), i)
            fitted += one
        return fitted

    def get(self, state: ShardedArrays, gather: Gather = "first") -> list[NDArray]:
        """Global arrays of a run's outputs, or of any of them; with replicas, those of replica 0."""
        return [
            self.whole([own[i] for own in state.tiles], boundary)
            for i, boundary in enumerate(state.boundaries)
        ]

    def whole(self, tiles: Sequence[NDArray], boundary: Boundary) -> NDArray:
        """One global array from its tiles on all devices."""
        partitions = self.program.num_partitions
        return gather_tiles(tiles[:partitions], boundary.sharding, boundary.shape)

    def _divide(self, arrays: Sequence[NDArray], boundaries: tuple[Boundary, ...]) -> ShardedArrays:
        partitions = self.program.num_partitions
        tiles = tuple(
            tuple(
                shard_of(array, boundary.sharding, boundary.shape, device % partitions)
                for array, boundary in zip(arrays, boundaries, strict=True)
            )
            for device in self.devices
        )
        return ShardedArrays(tiles, boundaries)

    def _require_count(self, found: int) -> None:
        if found != len(self.inputs):
            raise RunError(f"{self.program.name} takes {len(self.inputs)} arrays, found {found}")

    def run_devices(self, per_device: Sequence[Sequence[NDArray]]) -> list[list[NDArray]]:
        """One step on the own arrays of each of ``devices``; device = replica * num_partitions + partition."""
        if self._local is None:
            self._local = LoopbackDevices(self.program, self.kernels)
        local, self._local = self._local, None
        outputs = local.run(per_device)
        self._local = local  # devices whose run failed are not used again
        return outputs
