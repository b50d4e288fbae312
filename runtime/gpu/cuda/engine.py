"""Engines for the CUDA GPUs of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.gpu.availability import require_gpu
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.options import GpuOptions


def cuda_engine_on(
    index: int, collectives: Callable[[], NcclCommunicator | None], options: GpuOptions
) -> GpuEngine:
    """Return the engine of one rank of a job, which uses GPU number ``index`` among those that this process sees.

    collectives: returns the communicator between the ranks' GPUs, or None. Raises NoGpuError if no GPU is usable.
    """
    require_gpu()
    # Ranks do not measure, so that all use the same algorithms.
    drivers = _drivers(lambda _: index, options, measures=False)
    return GpuEngine(drivers, launch_maker, options, collectives)


def cuda_engine(options: GpuOptions) -> GpuEngine:
    """Return the engine of all GPUs that this process sees, for programs whose devices all run in this process.

    Device d runs on GPU d modulo the number of GPUs. Raises NoGpuError if no GPU is usable.
    """
    count = require_gpu()
    return GpuEngine(_drivers(lambda d: d % count, options, measures=True), launch_maker, options)


def _drivers(
    index_of: Callable[[int], int], options: GpuOptions, *, measures: bool
) -> Callable[[int], GpuDriver]:
    """Return the function that returns the driver of a device, which runs on GPU ``index_of(device)``.

    All devices of this process share the choices of algorithms. measures: missing choices are measured.
    """
    tuning = Tuning(Path(options.tuning_file), measures=measures) if options.tuning_file else None

    def driver(device: int) -> GpuDriver:
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        return CudaDriver(index_of(device), tuning)

    return driver
