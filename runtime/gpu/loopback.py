"""All devices of a program in one process, each with its own thread. Several devices may share a GPU.

Collectives between these devices go through host memory, because NCCL allows only one rank per GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from collectives.communicator.interface import PeerFailedError
from collectives.communicator.loopback.communicator import LoopbackWorld
from runtime.arrays.slots import DeviceArray
from runtime.cpu.libraries.blas import BlasThreads
from runtime.device_program import DeviceProgram
from runtime.gpu.device import LoadedGpuDevice
from runtime.gpu.driver import GpuDriver
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import MakeLaunches


class GpuLoopbackDevices:
    """All devices of a program in this process (LocalDevices). They can run any number of steps until a step fails."""

    def __init__(
        self,
        program: DeviceProgram,
        drivers: Callable[[int], GpuDriver],
        make_launches: Callable[[GpuDriver], MakeLaunches],
        timeout_seconds: float = 300.0,
        *,
        options: GpuOptions = DEFAULT,
        record: bool = False,
        reference_every: int = 0,
    ) -> None:
        """Load the program for each device.

        drivers: returns the driver of a device number. make_launches: returns the kernel compiler for a driver's GPU.
        timeout_seconds: longest wait for a peer in a collective. The other arguments are those of LoadedGpuDevice.
        """
        self.world = LoopbackWorld(program.num_devices, timeout_seconds)
        self.devices = []
        for rank in range(program.num_devices):
            driver = drivers(rank)
            self.devices.append(
                LoadedGpuDevice(
                    program,
                    self.world.communicator(rank),
                    driver,
                    make_launches=make_launches(driver),
                    options=options,
                    record=record,
                    reference_every=reference_every,
                )
            )
        self._threads = ThreadPoolExecutor(max(1, len(self.devices) - 1), "gpu")
        self._one_blas_thread = BlasThreads(1)

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run a step of every device and wait for all. ``per_device[i]`` are the arguments of device i.

        Device 0 runs on the calling thread, the others on threads of a pool. If a device fails, the others are aborted,
        and the error that caused the failure is raised unchanged.
        """
        self.world.rejoin()
        (first, its_arrays), *others = zip(self.devices, per_device, strict=True)
        with self._one_blas_thread:
            steps = [self._threads.submit(self._step, *other) for other in others]
            found = [self._step(first, its_arrays), *(step.result() for step in steps)]
        errors = [error for error in found if error is not None]
        own = [error for error in errors if not isinstance(error, PeerFailedError)]
        for error in (*own, *errors):
            raise error

    def _step(self, device: LoadedGpuDevice, arrays: Sequence[DeviceArray]) -> BaseException | None:
        """Run one device's step. Returns its error, or None; an error is first reported to the other devices."""
        rank = device.communicator.rank
        try:
            device.step(arrays)
        except BaseException as error:  # noqa: BLE001 - raised by the caller, when the others are done
            self.world.abort(rank, error)
            return error
        self.world.leave(rank)
        return None
