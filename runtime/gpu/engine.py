"""What runs an executable on GPUs: an Engine (runtime/executable.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.executable import Executable, LocalDevices
from runtime.gpu.driver import GpuDriver
from runtime.gpu.loopback import GpuLoopbackDevices
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import MakePtx, no_ptx


def _no_ptx(_: GpuDriver) -> MakePtx:
    return no_ptx


@dataclass(frozen=True)
class GpuEngine:
    """``drivers``: device number -> the GPU that it runs on. ``make_ptx``: for kernels on that GPU."""

    drivers: Callable[[int], GpuDriver]
    make_ptx: Callable[[GpuDriver], MakePtx] = _no_ptx
    options: GpuOptions = DEFAULT

    def load_local(self, executable: Executable) -> LocalDevices:
        """All devices of the program, in this process."""
        return GpuLoopbackDevices(
            executable.program,
            executable.kernels,
            self.drivers,
            self.make_ptx,
            executable.timeout_seconds,
            options=self.options,
            record=executable.record,
            reference_every=executable.reference_every,
        )
