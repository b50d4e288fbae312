"""Programs through the engine on a double of a GPU give the reference evaluator's results."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.communicator.loopback import LoopbackWorld
from runtime.executable import Executable
from runtime.gpu.device import LoadedGpuDevice
from runtime.gpu.options import GpuOptions
from runtime.kernel import CPU_KERNELS
from runtime.resident import DeviceArray
from spmd.evaluator.evaluator import evaluate
from tests.runtime.gpu.host_driver import HostDriver
from tests.runtime.programs import ALIASING, assert_same, compiled, module_of, random_inputs

SLICE = """HloModule slice
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,3] parameter(1)
  b = f32[3] parameter(2)
  y = f32[4,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[4,3] broadcast(b), dimensions={1}
  z = f32[4,3] add(y, wide)
  ROOT r = f32[4,3] tanh(z)
}
"""


def loaded(executable: Executable, **options: bool) -> tuple[LoadedGpuDevice, HostDriver]:
    driver = HostDriver()
    world = LoopbackWorld(1)
    device = LoadedGpuDevice(
        executable.program,
        world.communicator(0),
        driver,
        CPU_KERNELS,
        options=GpuOptions(**options),
    )
    return device, driver


def run(device: LoadedGpuDevice, inputs: list[np.ndarray]) -> list[np.ndarray]:
    device.step([DeviceArray(x) for x in inputs])
    return [np.asarray(out) for out in device.outputs]


def test_slice() -> None:
    executable = compiled(SLICE)
    device, _ = loaded(executable)
    inputs = random_inputs(executable.module)
    for _ in range(3):
        assert_same(run(device, inputs), evaluate(module_of(SLICE), *inputs))


@pytest.mark.parametrize("name", ALIASING)
def test_one_device(name: str) -> None:
    executable = compiled(ALIASING[name])
    device, _ = loaded(executable)
    for seed in range(3):
        inputs = random_inputs(executable.module, seed)
        assert_same(run(device, inputs), evaluate(module_of(ALIASING[name]), *inputs))
