"""All devices of a program in this process: a thread per device, joined by loopback collectives."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from collectives.communicator.interface import PeerFailedError
from collectives.communicator.loopback import LoopbackWorld
from runtime.blas import limited_blas_threads
from runtime.executor import DeviceProgram, LoadedDevice
from runtime.kernel import KernelLibrary
from spmd.literal import NDArray


class LoopbackDevices:
    """Loaded once, run any number of times. After a failed run the devices are of no more use."""

    def __init__(
        self, program: DeviceProgram, kernels: KernelLibrary, timeout_seconds: float = 300.0
    ) -> None:
        self.world = LoopbackWorld(program.num_devices, timeout_seconds)
        self.devices = [
            LoadedDevice(program, self.world.communicator(rank), kernels)
            for rank in range(program.num_devices)
        ]

    def run(self, per_device: Sequence[Sequence[NDArray]]) -> list[list[NDArray]]:
        """Outputs of every device from the inputs of every device. The first device's error is raised unchanged."""
        if len(self.devices) == 1:
            return [self.devices[0].run(per_device[0])]
        results: dict[int, list[NDArray]] = {}
        errors: list[BaseException] = []

        def work(rank: int) -> None:
            try:
                results[rank] = self.devices[rank].run(per_device[rank])
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                errors.append(error)
                self.world.abort(rank, error)

        threads = [
            threading.Thread(target=work, args=(rank,), name=f"device {rank}", daemon=True)
            for rank in range(len(self.devices))
        ]
        with limited_blas_threads(1):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise next((e for e in errors if not isinstance(e, PeerFailedError)), errors[0])
        return [results[rank] for rank in range(len(self.devices))]
