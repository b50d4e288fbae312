"""RankExecutable: an executable of which this process runs one device, as a rank among the others of an MPI job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from collectives.communicator.interface import Communicator
from launch.data.inputs import Array
from launch.ranks.rank_environment import blas_threads_of_environment
from launch.report.thunk_source_lines import explain_thunk
from runtime.arrays.host_feed import Given, HostFeeds, given_bytes, read_given
from runtime.arrays.slots import DeviceArray
from runtime.cpu.executor import LoadedDevice
from runtime.executable import Executable, Gather
from runtime.local_devices import LocalDevices
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass


@dataclass(kw_only=True)
class RankExecutable(Executable):
    """Executable of one rank of a job. Every rank must call the same methods in the same order: ``run``, ``fit`` and
    ``get`` communicate, ``put`` does not.

    All ranks pass the same global arrays, of which each uses its tiles. Outputs are returned on rank 0, or on all ranks
      with ``gather="all"``; the other ranks get an empty list.
    """

    communicator: Communicator

    @staticmethod
    def of(executable: Executable, communicator: Communicator) -> RankExecutable:
        """Load ``executable`` on this rank. Raises RunError if the world has another size than the program."""
        own = RankExecutable(
            executable.source,
            executable.program,
            executable.inputs,
            executable.outputs,
            executable.kernels,
            executable.compile_seconds,
            executable.timeout_seconds,
            executable.record,
            executable.reference_every,
            executable.overlap,
            executable.engine,
            communicator=communicator,
        )
        own.load_devices()
        return own

    @property
    def devices(self) -> range:
        return range(self.communicator.rank, self.communicator.rank + 1)

    @property
    def world(self) -> Communicator:
        return self.communicator

    def load_local(self) -> LocalDevices:
        if self.engine is not None:
            return self.engine.load_rank(self, self.communicator, partial(explain_thunk, self))
        threads = blas_threads_of_environment()
        return RankDevice(self.load(self.communicator, threads, partial(explain_thunk, self)))

    def _everyones_given(
        self, feeds: HostFeeds, gather: Gather
    ) -> Sequence[Sequence[Given]] | None:
        (own,) = feeds.given.values()
        world = self.communicator
        collect = world.all_gather_bytes if gather == "all" else world.gather_bytes
        data = collect(given_bytes(own))
        if data is None:
            return None
        sites = [thunk.site for thunk in self.program.outfeeds]
        return [read_given(one, sites) for one in data]

    def _everyones(self, own: Sequence[DeviceArray], gather: Gather) -> list[Array] | None:
        (tile,) = own
        world = self.communicator
        collect = world.all_gather_bytes if gather == "all" else world.gather_bytes
        data = collect(tile.view().tobytes())
        if data is None:
            return None
        return [np.frombuffer(one, tile.dtype).reshape(tile.shape) for one in data]


class RankDevice:
    """This rank's one device (LocalDevices)."""

    def __init__(self, device: LoadedDevice) -> None:
        """Link the device to its peers. All ranks call this at the same time."""
        self.devices = (device,)
        device.communicator.keep_to_own_cores()
        device.link()

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        if len(per_device) != 1:
            raise RunError(f"a rank runs one device, found the arrays of {len(per_device)}")
        (device,), (arrays,) = self.devices, per_device
        device.step(arrays)
