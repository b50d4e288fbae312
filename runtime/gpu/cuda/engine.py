"""Engine of this machine's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtime.gpu.availability import require_gpu
from runtime.gpu.collective import GpuCommunicator
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.ptx import ptx_maker


def cuda_engine_on(
    index: int,
    collectives: Callable[[], GpuCommunicator | None],
    options: GpuOptions = DEFAULT,
) -> GpuEngine:
    """Return the engine of one rank: GPU number ``index`` of this process, and its collectives with other ranks."""
    require_gpu()
    tuning = _tuning(options, measures=False)

    def driver(_: int) -> GpuDriver:
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        return CudaDriver(index, tuning)

    return GpuEngine(driver, ptx_maker, options, collectives)


def cuda_engine(options: GpuOptions = DEFAULT) -> GpuEngine:
    """Return the engine of all GPUs, several devices of which may share one. Raises NoGpuError if there is none."""
    count = require_gpu()
    tuning = _tuning(options, measures=True)

    def driver(device: int) -> GpuDriver:
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        return CudaDriver(device % count, tuning)

    return GpuEngine(driver, ptx_maker, options)


def _tuning(options: GpuOptions, *, measures: bool) -> Tuning | None:
    """Return the choices that all devices of this process share. Ranks measure none, so that all take the same."""
    if not options.tuning_file:
        return None
    return Tuning(Path(options.tuning_file), measures=measures)
