"""Executables on doubles of GPUs."""

from __future__ import annotations

from runtime.executable import Executable
from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.loopback import GpuLoopbackDevices
from runtime.gpu.options import GpuOptions
from runtime.gpu.planning import MakeLaunches, Views
from runtime.program.kernel import Kernel
from runtime.program.records.attention import AttentionKernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.records.fft import FftKernel
from runtime.program.records.ragged_dot import RaggedDotKernel
from tests.runtime.gpu.doubles.host_driver import HostDriver

#: A launch of a kernel in PTX for doubles, which take the kernel's record instead.
NO_TEXT = KernelSource("", (), (), 0, 1, 1, ())
_BY_LIBRARIES = (AttentionKernel, CopyKernel, DotKernel, FftKernel, RaggedDotKernel)


def ptx_of_all(kernel: Kernel, _: Views, __: Views, ___: Views) -> tuple[KernelSource, ...] | None:
    """Return launches for all kernels except those that libraries compute."""
    return None if isinstance(kernel, _BY_LIBRARIES) else (NO_TEXT,)


def no_ptx(_: Kernel, __: Views, ___: Views, ____: Views) -> None:
    """Return None: no kernel has launches."""


class Doubles:
    """Drivers by device, made when they are asked for; ``ptx``: kernels have that form, else the host does them."""

    def __init__(self, *, ptx: bool, **options: bool) -> None:
        self.drivers: dict[int, HostDriver] = {}
        self._make_launches: MakeLaunches = ptx_of_all if ptx else no_ptx
        self._options = GpuOptions(**options)

    def on(self, executable: Executable) -> Executable:
        executable.engine = GpuEngine(self._driver, self._ptx, self._options)
        return executable

    def _driver(self, device: int) -> HostDriver:
        return self.drivers.setdefault(device, HostDriver())

    def _ptx(self, _: GpuDriver) -> MakeLaunches:
        return self._make_launches


def devices_of(executable: Executable) -> GpuLoopbackDevices:
    executable.load_devices()
    loaded = executable._loaded
    assert isinstance(loaded, GpuLoopbackDevices)
    return loaded
