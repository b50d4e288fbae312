"""All devices of a program in this process: one thread each; several devices may share a GPU.

Their collectives go through the host: NCCL allows one rank per GPU, and ranks of one process exchange data in memory.
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
from runtime.gpu.planning import MakePtx
from runtime.program.kernel import KernelLibrary


class GpuLoopbackDevices:
    """Devices that are loaded once and run any number of times, until a run fails (LocalDevices)."""

    def __init__(
        self,
        program: DeviceProgram,
        host_kernels: KernelLibrary,
        drivers: Callable[[int], GpuDriver],
        make_ptx: Callable[[GpuDriver], MakePtx],
        timeout_seconds: float = 300.0,
        *,
        options: GpuOptions = DEFAULT,
        record: bool = False,
        reference_every: int = 0,
    ) -> None:
        """``drivers``: device number -> its GPU."""
        self.world = LoopbackWorld(program.num_devices, timeout_seconds)
        self.devices = []
        for rank in range(program.num_devices):
            driver = drivers(rank)
            self.devices.append(
                LoadedGpuDevice(
                    program,
                    self.world.communicator(rank),
                    driver,
                    host_kernels,
                    make_ptx=make_ptx(driver),
                    options=options,
                    record=record,
                    reference_every=reference_every,
                )
            )
        self._threads = ThreadPoolExecutor(max(1, len(self.devices) - 1), "gpu")
        self._one_blas_thread = BlasThreads(1)

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run a step of every device, the first one on the caller's thread: one device alone needs no other thread.

        The error of the device that failed first is raised unchanged.
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
        """Run one device's step and return its error, after it has been reported to the other devices."""
        rank = device.communicator.rank
        try:
            device.step(arrays)
        except BaseException as error:  # noqa: BLE001 - raised by the caller, when the others are done
            self.world.abort(rank, error)
            return error
        self.world.leave(rank)
        return None
