"""RankExecutable: an executable of which each rank of an MPI job runs one device."""

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
    """Executable of which this rank runs one device.

    Every rank must call the same methods in the same order: ``run``, ``fit`` and ``get`` communicate, ``put`` does not.
    All ranks pass the same global arrays, and each rank uses its own tiles. Outputs are returned on rank 0, or on all
    ranks with ``gather="all"``; the other ranks get an empty list.
    """

    communicator: Communicator

    @staticmethod
    def of(executable: Executable, communicator: Communicator) -> RankExecutable:
        """Load ``executable`` on this rank. All ranks must call it at the same time.

        Raises RunError if the number of ranks is not the program's number of devices.
        """
        own = RankExecutable(
            executable.source,
            executable.program,
            executable.inputs,
            executable.outputs,
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
        """Return the number of this rank's device, which is that of the rank."""
        return range(self.communicator.rank, self.communicator.rank + 1)

    @property
    def world(self) -> Communicator:
        """Return the communicator of the ranks that run the program together."""
        return self.communicator

    def load_local(self) -> LocalDevices:
        """Load the program on this rank's device. All ranks must call it at the same time."""
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
    """The single device of this rank, as LocalDevices."""

    def __init__(self, device: LoadedDevice) -> None:
        """Bind this rank to its cores, and wait for the machine code of ``device``.

        All ranks must have loaded their devices before.
        """
        self.devices = (device,)
        device.communicator.keep_to_own_cores()
        device.link()

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run one step on the arrays of this rank's device. Raises RunError unless there are those of one device."""
        if len(per_device) != 1:
            raise RunError(f"a rank runs one device, found the arrays of {len(per_device)}")
        (device,), (arrays,) = self.devices, per_device
        device.step(arrays)
