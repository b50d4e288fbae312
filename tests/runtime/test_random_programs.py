"""Random sharded programs: every device's thunks give what lock-step evaluation gives, twice the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.compile import build_executable
from spmd.evaluator.lockstep import evaluate_partitions
from tests.strategies import generate


@pytest.mark.parametrize("seed", range(40))
def test_devices_agree_with_the_evaluator(seed: int) -> None:
    program = generate(seed)
    *_, (_, compilation) = stages(program.module, program.num_devices, CompileOptions())
    executable = build_executable(compilation.module, logical=program.module)
    tiles = [[np.asarray(tile) for tile in own] for own in executable.put(program.inputs()).tiles]
    want = evaluate_partitions(compilation.module, tiles)
    got = executable.run_devices(tiles)
    again = executable.run_devices(tiles)
    for device, outputs in enumerate(want):
        for x, y, z in zip(outputs, got[device], again[device], strict=True):
            assert y.dtype == x.dtype
            assert y.tobytes() == z.tobytes()
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(y.astype(wide), x.astype(wide), rtol=2e-5, atol=1e-5)
