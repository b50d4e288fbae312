"""All devices of a program in this process: a thread per device, joined by loopback collectives."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.communicator.loopback import LoopbackWorld
from collectives.communicator.threads import run_on_threads
from runtime.blas import limited_blas_threads
from runtime.device_program import DeviceProgram
from runtime.executor import LoadedDevice
from runtime.kernel import KernelLibrary
from runtime.resident import DeviceArray


class LoopbackDevices:
    """Loaded once, run any number of times. After a failed run the devices are of no more use."""

    def __init__(
        self,
        program: DeviceProgram,
        kernels: KernelLibrary,
        timeout_seconds: float = 300.0,
        *,
        record: bool = False,
    ) -> None:
        self.world = LoopbackWorld(program.num_devices, timeout_seconds)
        self.devices = [
            LoadedDevice(program, self.world.communicator(rank), kernels, record=record)
            for rank in range(program.num_devices)
        ]

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> list[list[DeviceArray]]:
        """Outputs of every device from the inputs of every device. The first device's error is raised unchanged."""
        if len(self.devices) == 1:
            return [self.devices[0].step(per_device[0])]
        with limited_blas_threads(1):
            return run_on_threads(
                self.world, lambda comm: self.devices[comm.rank].step(per_device[comm.rank])
            )
