"""Products with gelu, or with its gradient, in one call of cuBLASLt are what the reference evaluator computes."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.report import KernelReport
from spmd.evaluator.evaluator import evaluate
from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.gelu_programs import gelu_program, gradient_program
from tests.runtime.gpu.product_epilogues import Program, compiled_for_gpu
from tests.runtime.programs import module_of, random_inputs


def check(program: Program, on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled_for_gpu(program.text))
    inputs = random_inputs(module_of(program.text))
    wanted = evaluate(module_of(program.text), *inputs)
    for _ in range(3):  # launched, captured, replayed
        for got, want in zip(executable.run(*inputs), wanted, strict=True):
            wide = want.astype(np.float64)
            error = np.abs(got.astype(np.float64) - wide).max()
            assert error <= program.tolerance * np.abs(wide).max()
    assert executable.kernel_report == KernelReport(0, 1, ())


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_gelu(kind: str, on_gpu: OnGpu, *, bias: bool, keeps: bool) -> None:
    check(gelu_program("jax", kind, bias=bias, keeps=keeps), on_gpu)


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_gradient(kind: str, on_gpu: OnGpu) -> None:
    check(gradient_program(kind), on_gpu)
