"""Devices of a process that is one rank of a GPU job: exactly one."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.arrays.slots import DeviceArray
from runtime.cpu.libraries.blas import BlasThreads
from runtime.gpu.device import LoadedGpuDevice
from spmd.errors import RunError


class GpuRankDevice:
    """LocalDevices of a process that is one rank of a job: one loaded device. BLAS on the host uses one thread."""

    def __init__(self, device: LoadedGpuDevice) -> None:
        self.devices = (device,)
        self._one_blas_thread = BlasThreads(1)

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> None:
        """Run a step on the arguments ``per_device[0]``. Raises RunError if ``per_device`` has not length 1."""
        if len(per_device) != 1:
            raise RunError(f"a rank runs one device, found the arrays of {len(per_device)}")
        with self._one_blas_thread:
            self.devices[0].step(per_device[0])
