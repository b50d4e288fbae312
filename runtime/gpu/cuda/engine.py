"""Engines for the CUDA GPUs of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.gpu.availability import require_gpu
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.ptx import ptx_maker


def cuda_engine_on(
    index: int,
    collectives: Callable[[], NcclCommunicator | None],
    options: GpuOptions = DEFAULT,
) -> GpuEngine:
    """Return the engine of one rank of a job, which uses GPU number ``index`` among those that this process sees.

    collectives: returns the communicator between the ranks' GPUs, or None. Raises NoGpuError if no GPU is usable.
    """
    require_gpu()
    tuning = _tuning(options, measures=False)

    def driver(_: int) -> GpuDriver:
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        return CudaDriver(index, tuning)

    return GpuEngine(driver, ptx_maker, options, collectives)


def cuda_engine(options: GpuOptions = DEFAULT) -> GpuEngine:
    """Return the engine of all GPUs that this process sees, for programs whose devices all run in this process.

    Device d runs on GPU d modulo the number of GPUs. Raises NoGpuError if no GPU is usable.
    """
    count = require_gpu()
    tuning = _tuning(options, measures=True)

    def driver(device: int) -> GpuDriver:
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        return CudaDriver(device % count, tuning)

    return GpuEngine(driver, ptx_maker, options)


def _tuning(options: GpuOptions, *, measures: bool) -> Tuning | None:
    """Return the choices of algorithms that all devices of this process share, or None if there is no tuning file.

    measures: missing choices are measured. Ranks of a job must not measure, so that all use the same algorithms.
    """
    if not options.tuning_file:
        return None
    return Tuning(Path(options.tuning_file), measures=measures)
