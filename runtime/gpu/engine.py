"""Engine that runs an executable on GPUs (runtime/executable.py)."""

from __future__ import annotations

from collections.abc import Callable

from collectives.communicator.interface import Communicator
from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.executable import Executable
from runtime.gpu.device import LoadedGpuDevice
from runtime.gpu.driver import GpuDriver
from runtime.gpu.loopback import GpuLoopbackDevices
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import MakeLaunches
from runtime.gpu.rank import GpuRankDevice
from runtime.gpu.report import KernelReport
from runtime.local_devices import LocalDevices
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GpuEngine:
    """Engine that loads executables on GPUs.

    drivers: returns the driver of a device number. make_launches: returns the kernel compiler for a driver's GPU.
    collectives: returns the communicator from this rank's GPU to the GPUs of other ranks, or None if collectives go
    through the hosts.
    """

    drivers: Callable[[int], GpuDriver]
    make_launches: Callable[[GpuDriver], MakeLaunches]
    options: GpuOptions = DEFAULT
    collectives: Callable[[], NcclCommunicator | None] = lambda: None

    def load_local(self, executable: Executable) -> LocalDevices:
        """Load the program for all its devices in this process."""
        return GpuLoopbackDevices(
            executable.program,
            self.drivers,
            self.make_launches,
            executable.timeout_seconds,
            options=self.options,
            record=executable.record,
            reference_every=executable.reference_every,
        )

    def kernel_report(self, local: LocalDevices) -> KernelReport:
        """Return the kernel report of the first of the devices ``local``, which this engine must have loaded."""
        device = local.devices[0]
        assert isinstance(device, LoadedGpuDevice), "loaded by this engine"
        return device.kernel_report

    def load_rank(
        self, executable: Executable, communicator: Communicator, explain: Callable[[int], str]
    ) -> LocalDevices:
        """Load the program for the device of this rank. ``explain`` describes a thunk number in messages of peers."""
        driver = self.drivers(communicator.rank)
        return GpuRankDevice(
            LoadedGpuDevice(
                executable.program,
                communicator,
                driver,
                collectives=self.collectives(),
                make_launches=self.make_launches(driver),
                options=self.options,
                record=executable.record,
                reference_every=executable.reference_every,
                explain=explain,
            )
        )
