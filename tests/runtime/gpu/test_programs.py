"""Tests that programs on doubles of GPUs give the reference evaluator's results.

With kernels in PTX most of a program runs as graphs; without them the host computes and decides everything.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from runtime.arrays.sharded_arrays import ShardedArrays
from runtime.gpu.engine import GpuEngine
from runtime.gpu.errors import GpuFailedError, GpuMemoryError
from runtime.gpu.work import GemmWork, Work
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from tests.runtime.fusion.test_stacked_components import program
from tests.runtime.gpu.doubles.engines import Doubles, devices_of, no_ptx
from tests.runtime.gpu.doubles.host_driver import HostBlock, HostDriver
from tests.runtime.gpu.doubles.host_streams import HostStream
from tests.runtime.gpu.transforms import TRANSFORMS, check_transforms
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    ASYNC_WRAPPED,
    COLLECTIVES,
    OVER_OPERANDS,
    SHARING,
    assert_same,
    compiled,
    module_of,
    random_inputs,
)

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
ONE_DEVICE = {
    "slice": SLICE,
    "stacked": program("cross product and a sum"),
    "outer product": program("outer product"),
    **ALIASING,
}
MEETING = {
    "blocking": COLLECTIVES,
    "async": ASYNC_COLLECTIVES,
    "wrapped": ASYNC_WRAPPED,
    "over operands": OVER_OPERANDS,
    **SHARING,
}


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("ptx", [False, True])
@pytest.mark.parametrize("name", ONE_DEVICE)
def test_one_device(name: str, ptx: bool, graphs: bool) -> None:
    executable = Doubles(ptx=ptx, graphs=graphs).on(compiled(ONE_DEVICE[name]))
    for seed in (0, 1, 2, 0):  # done one by one, captured, replayed, replayed
        inputs = random_inputs(executable.module, seed)
        assert_same(executable.run(*inputs), evaluate(module_of(ONE_DEVICE[name]), *inputs))


@pytest.mark.parametrize("ptx", [False, True])
@pytest.mark.parametrize("name", MEETING)
def test_collectives(name: str, ptx: bool) -> None:
    executable = Doubles(ptx=ptx).on(compiled(MEETING[name], keep_order=True))
    for step in range(3):
        per_device = [
            random_inputs(executable.module, 10 * step + device)
            for device in range(executable.num_devices)
        ]
        want = evaluate_partitions(module_of(MEETING[name]), per_device)
        for got, wanted in zip(executable.run_devices(per_device), want, strict=True):
            assert_same(got, wanted)


def test_report_names_what_the_host_computes() -> None:
    executable = Doubles(ptx=False).on(compiled(SLICE))
    (device,) = devices_of(executable).devices
    assert device.kernel_report.library == 1
    assert {name for _, name in device.kernel_report.hosted} == {"z", "r"}
    assert "by the host" in str(device.kernel_report)


def test_steps_allocate_nothing() -> None:
    doubles = Doubles(ptx=True)
    executable = doubles.on(compiled(SLICE))
    inputs = random_inputs(executable.module)
    state = executable.put(inputs)
    executable.run(state)
    before = doubles.drivers[0].allocations
    for _ in range(3):
        executable.run(state)
    assert doubles.drivers[0].allocations == before


def test_the_memory_of_an_output_outlives_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller may drop a program and give its output to another one."""
    freed: list[range] = []

    def allocate(driver: HostDriver, num_bytes: int, *_: object) -> HostBlock:
        """Return a block to which the driver holds no reference."""
        block = HostBlock(np.zeros(num_bytes, np.uint8))
        span = range(block.address, block.address + num_bytes)
        weakref.finalize(block, freed.append, span).atexit = False
        driver._blocks.append(HostBlock(block.memory))
        return block

    monkeypatch.setattr(HostDriver, "allocate", allocate)
    executable = Doubles(ptx=True).on(compiled(SLICE))
    state = executable.run(executable.put(random_inputs(executable.module)))
    assert isinstance(state, ShardedArrays)
    addresses = [array.data.address for array in state.tiles[0]]  # type: ignore[attr-defined]
    del executable
    gc.collect()
    assert not any(address in span for address in addresses for span in freed)
    del state
    gc.collect()
    assert all(any(address in span for span in freed) for address in addresses)


def works(launched: list[str]) -> list[str]:
    """Return the kernels and library calls among what was launched."""
    return [name for name in launched if name.endswith("Work")]


def test_graphs_can_be_switched_off_between_steps() -> None:
    doubles = Doubles(ptx=True)
    executable = doubles.on(compiled(SLICE))
    (device,) = devices_of(executable).devices
    inputs = random_inputs(executable.module)
    want = evaluate(module_of(SLICE), *inputs)
    state, launched = executable.put(inputs), doubles.drivers[0].launched
    for wanted, kernels in ((True, 3), (False, 3), (True, 3), (True, 0), (False, 3), (True, 0)):
        device.use_graphs(wanted)
        before = len(launched)
        results = executable.run(state)
        # Launching a graph does not count as launching its kernels.
        assert len(works(launched[before:])) == kernels
        assert_same(executable.get(results), want)


def test_graphs_that_are_gone_are_captured_again() -> None:
    executable = Doubles(ptx=True).on(compiled(SLICE))
    (device,) = devices_of(executable).devices
    inputs = random_inputs(executable.module)
    want = evaluate(module_of(SLICE), *inputs)
    for step in range(4):
        if step == 3:
            device._gpu.release_graphs()
        assert_same(executable.run(*inputs), want)


def test_steps_in_a_row_do_the_work_of_so_many() -> None:
    doubles = Doubles(ptx=True, graphs=False)
    executable = doubles.on(compiled(SLICE))
    (device,) = devices_of(executable).devices
    inputs = random_inputs(executable.module)
    state, launched = executable.put(inputs), doubles.drivers[0].launched
    executable.run(state)
    before = len(launched)
    assert device.seconds_in_a_row(4) >= 0
    assert len(works(launched[before:])) == 4 * len(works(launched[:before])) == 12
    assert_same(executable.get(executable.run(state)), evaluate(module_of(SLICE), *inputs))


def test_ranges_name_steps() -> None:
    doubles = Doubles(ptx=True, ranges=True, graphs=False)
    executable = doubles.on(compiled(SLICE))
    executable.run(*random_inputs(executable.module))
    assert {"y", "r"} <= set(doubles.drivers[0].ranges)


def test_too_little_memory() -> None:
    executable = compiled(SLICE)
    executable.engine = GpuEngine(lambda _: HostDriver(free_bytes=1000), lambda _: no_ptx)
    with pytest.raises(
        GpuMemoryError, match=r"needs 1,\d+ bytes of a double of a GPU .*, but 1,000 are free"
    ):
        executable.run(*random_inputs(executable.module))


class DeviceError(Exception):
    """An error as CuPy raises it."""


class Refuses(HostDriver):
    """A driver that refuses every matrix product when it is loaded."""

    failures = (DeviceError,)

    def load(self, work: Work) -> Callable[[HostStream], None]:
        if isinstance(work, GemmWork):
            raise DeviceError("CUDA_ERROR_INVALID_PTX")
        return super().load(work)


def test_a_kernel_that_the_device_refuses() -> None:
    executable = compiled(SLICE)
    executable.engine = GpuEngine(lambda _: Refuses(), lambda _: no_ptx)
    with pytest.raises(GpuFailedError, match=r"^y on a double of a GPU: CUDA_ERROR_INVALID_PTX"):
        executable.load_devices()


def test_a_device_that_fails_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = Doubles(ptx=True).on(compiled(SLICE))
    (device,) = devices_of(executable).devices

    def fail(*_: object) -> None:
        raise DeviceError("cudaErrorIllegalAddress")

    monkeypatch.setattr(HostDriver, "failures", (DeviceError,))
    monkeypatch.setattr(type(device), "run_steps", fail)
    with pytest.raises(
        GpuFailedError, match=r"^slice on a double of a GPU: cudaErrorIllegalAddress"
    ):
        executable.run(*random_inputs(executable.module))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    check_transforms(Doubles(ptx=True).on(compiled(TRANSFORMS[name])))
