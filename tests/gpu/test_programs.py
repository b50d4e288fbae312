"""Programs on a GPU give what the reference evaluator gives: one device, and several that share the GPUs there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from launch.checks.expect import Expected, OutputCheck, check_output, read_expected
from launch.checks.rounding import judge_rounding
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import compile_module, stages
from launch.target.machine_option import machine_for
from runtime.compile import build_executable
from runtime.timeline.events import CollectiveEvent, events_of
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.evaluator.op_tables import REGISTERED
from spmd.evaluator.rounding_noise import RoundingNoise
from spmd.hlo import HloModule
from spmd.text.parser import parse_module
from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.test_captures import HELD
from tests.runtime.gpu.transforms import TRANSFORMS, check_transforms
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    ASYNC_WRAPPED,
    COLLECTIVES,
    assert_same,
    compiled,
    module_of,
    random_inputs,
)
from tests.strategies import generate

MEETING = {"blocking": COLLECTIVES, "async": ASYNC_COLLECTIVES, "wrapped": ASYNC_WRAPPED}


def options() -> CompileOptions:
    return CompileOptions(machine=machine_for(None, backend="gpu"))


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", ALIASING)
def test_one_device(name: str, graphs: bool, on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled(ALIASING[name]), graphs=graphs)
    for seed in (0, 1, 2, 0):  # done one by one, captured, replayed, replayed
        inputs = random_inputs(executable.module, seed)
        assert_same(executable.run(*inputs), evaluate(module_of(ALIASING[name]), *inputs))


@pytest.mark.parametrize("name", MEETING)
def test_collectives(name: str, on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled(MEETING[name], keep_order=True))
    for step in range(3):
        per_device = [
            random_inputs(executable.module, 10 * step + device)
            for device in range(executable.num_devices)
        ]
        want = evaluate_partitions(module_of(MEETING[name]), per_device)
        for got, wanted in zip(executable.run_devices(per_device), want, strict=True):
            assert_same(got, wanted)


def test_case(case_folder: Path, on_gpu: OnGpu) -> None:
    case = json.loads((case_folder / "case.json").read_text())
    module = parse_module((case_folder / "module.hlo").read_text())
    executable = on_gpu(compile_module(module, case["num_partitions"], options()))
    inputs = read_inputs(case_folder / "inputs.npz", Entry.of_module(module).inputs)
    wanted = read_expected(case_folder / "expected.npz", Entry.of_module(module).outputs)
    for _ in range(3):
        outputs = executable.run(*inputs)
        checks = [check_output(got, want) for got, want in zip(outputs, wanted, strict=True)]
        if not all(check.ok for check in checks):  # residuals of solutions are rounding alone
            checks = judged(module, inputs, outputs, wanted, checks)
        assert all(check.ok for check in checks), [check for check in checks if not check.ok]


def judged(
    module: HloModule,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    wanted: Sequence[Expected],
    checks: Sequence[OutputCheck],
) -> list[OutputCheck]:
    """Return the checks with the verdict of `spmd run --expect` on differences that rounding may explain."""

    def sample(noise: RoundingNoise | None) -> list[np.ndarray]:
        return evaluate(module, *inputs, tables=REGISTERED if noise is None else noise.tables())

    return judge_rounding(
        outputs, wanted, checks, sample, excess=False, seconds=20, show=lambda _: None
    ).checks


F8_PRODUCT = """HloModule product
ENTRY main {{
  x = {lhs}[{batch}{m},{k}] parameter(0)
  y = {rhs}[{batch}{k},{n}] parameter(1)
  ROOT z = {out}[{batch}{m},{n}] dot(x, y), {dims}
}}
"""
#: Rounding errors of results, relative to the sums of magnitudes.
ROUNDINGS = {"f32": 2.0**-12, "f16": 2.0**-10, "bf16": 2.0**-7}
BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)


@pytest.mark.parametrize("sizes", [(128, 256, 64), (48, 4096, 16), (33, 64, 16)])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("f8e4m3fn", "f8e4m3fn", "f32"),
        ("f8e4m3fn", "f8e5m2", "bf16"),
        ("f8e5m2", "f8e4m3fn", "f16"),
        ("f8e5m2", "f8e5m2", "f32"),
    ],
)
def test_products_in_8_bits(
    lhs: str, rhs: str, out: str, batched: bool, sizes: tuple[int, int, int], on_gpu: OnGpu
) -> None:
    """Tensor cores keep fewer bits of sums than f32 has; sizes and types that they do not take are converted."""
    m, k, n = sizes
    dims = BATCHED if batched else "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    batch = "3," if batched else ""
    text = F8_PRODUCT.format(lhs=lhs, rhs=rhs, out=out, m=m, k=k, n=n, dims=dims, batch=batch)
    executable = on_gpu(compiled(text))
    inputs = random_inputs(executable.module)
    (want,) = evaluate(module_of(text), *inputs)
    (size,) = evaluate(
        module_of(text), *(abs(x.astype(np.float32)).astype(x.dtype) for x in inputs)
    )
    for _ in range(3):
        (got,) = executable.run(*inputs)
        error = abs(got.astype(np.float64) - want.astype(np.float64))
        bound = ROUNDINGS[out] * size.astype(np.float64)
        assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int, on_gpu: OnGpu) -> None:
    program = generate(seed)
    *_, (_, compilation) = stages(program.module, program.num_devices, options())
    executable = on_gpu(build_executable(compilation.module, logical=program.module))
    tiles = [[np.asarray(tile) for tile in own] for own in executable.put(program.inputs()).tiles]
    want = evaluate_partitions(compilation.module, tiles)
    got, again = executable.run_devices(tiles), executable.run_devices(tiles)
    for device, outputs in enumerate(want):
        for x, y, z in zip(outputs, got[device], again[device], strict=True):
            assert y.dtype == x.dtype
            assert y.tobytes() == z.tobytes()
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(y.astype(wide), x.astype(wide), rtol=2e-5, atol=1e-5)


def test_arrays_stay_on_the_device(on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled(ALIASING["donated"]))
    inputs = random_inputs(executable.module)
    state = executable.put(inputs)
    want = executable.run(*inputs)
    assert_same(executable.get(executable.run(state)), want)


def test_outputs_held_over_steps_of_two_devices(on_gpu: OnGpu) -> None:
    """On one GPU the devices are threads: one allocates for the output that is held while the other captures."""
    executable = on_gpu(compiled(HELD))
    inputs = [random_inputs(executable.module, device) for device in range(2)]
    wanted = executable.run_devices(inputs)
    loaded = executable._loaded
    assert loaded is not None
    held = []
    for _ in range(4):
        held += [(number, device.outputs[0]) for number, device in enumerate(loaded.devices)]
        executable.run_devices(inputs)
    for number, array in held:
        np.testing.assert_array_equal(np.asarray(array.data), wanted[number][0])


def test_a_timeline(on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled(ASYNC_COLLECTIVES, keep_order=True))
    executable.record = True
    inputs = [random_inputs(executable.module, d) for d in executable.devices]
    for _ in range(3):
        executable.run_devices(inputs)
    root = executable.program.thunks
    for own in executable.recorded_steps():
        for step in own:
            events = events_of(root, step.timestamps)
            assert any(isinstance(event, CollectiveEvent) for event in events)
            assert all(event.end >= event.start for event in events)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, on_gpu: OnGpu) -> None:
    check_transforms(on_gpu(compiled(TRANSFORMS[name])))
