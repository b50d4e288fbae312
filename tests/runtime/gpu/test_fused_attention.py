"""Calls of fused attention on a GPU, whose kernels and libraries compute all of them."""

from __future__ import annotations

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import GpuOptions
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.spmd.library_calls.attention.calls import (
    BF16,
    Problem,
    cudnn_pair,
    transformer_engine_pair,
)


@pytest.mark.parametrize(
    ("problem", "tolerance"),
    [(Problem(mask="CAUSAL", h=4, s=33, t=35), 1e-5), (Problem(BF16, "PADDING", h=4, s=33), 3e-2)],
    ids=str,
)
def test_nothing_is_left_to_the_host(problem: Problem, tolerance: float) -> None:
    options = CompileOptions(partitioned=True, machine=machine_named("dgx-h200"))
    for call in (*cudnn_pair(problem), *transformer_engine_pair(problem, packed=True)):
        executable = compile_module(parse_module(call.text), 1, options)
        executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker, GpuOptions())
        found = executable.run(*call.arguments)
        assert executable.kernel_report is not None
        assert executable.kernel_report.hosted == ()
        for x, y in zip(found, call.evaluated(), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(
                x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance
            )
