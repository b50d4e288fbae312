"""RankExecutable: an executable of which this process runs one device, as a rank among the others of an MPI job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectives.communicator.interface import Communicator
from launch.execution import tiles_like
from launch.inputs import Array
from runtime.executable import Executable, Gather, ShardedArrays
from runtime.executor import LoadedDevice
from spmd.errors import RunError


@dataclass(kw_only=True)
class RankExecutable(Executable):
    """Every rank calls the same methods in the same order; ``run``, ``fit`` and ``get`` communicate, ``put`` does not.

    Global arrays go in alike on every rank, which takes its tiles of them. They come out on rank 0, or on all with
    ``gather="all"``; elsewhere the list is empty.
    """

    communicator: Communicator
    _device: LoadedDevice = field(init=False)

    def __post_init__(self) -> None:
        self._device = self.load(self.communicator)

    @staticmethod
    def of(executable: Executable, communicator: Communicator) -> RankExecutable:
        """``executable`` on this rank. RunError when the world has another size than the program."""
        return RankExecutable(
            executable.module,
            executable.program,
            executable.inputs,
            executable.outputs,
            executable.kernels,
            executable.compile_seconds,
            communicator=communicator,
        )

    @property
    def devices(self) -> range:
        return range(self.communicator.rank, self.communicator.rank + 1)

    def run_devices(self, per_device: Sequence[Sequence[Array]]) -> list[list[Array]]:
        if len(per_device) != 1:
            raise RunError(f"a rank runs one device, found the arrays of {len(per_device)}")
        return [self._device.run(per_device[0])]

    def get(self, state: ShardedArrays, gather: Gather = "first") -> list[Array]:
        (own,) = state.tiles
        collect = (
            self.communicator.all_gather_bytes
            if gather == "all"
            else self.communicator.gather_bytes
        )
        arrays = []
        for tile, boundary in zip(own, state.boundaries, strict=True):
            data = collect(tile.tobytes())
            if data is not None:
                arrays.append(self.whole(tiles_like(tile, data), boundary))
        return arrays
