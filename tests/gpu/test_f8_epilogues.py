"""Products of 8-bit operands with scales in memory, in one call of cuBLASLt, are what the reference evaluator computes."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.f8_programs import OPERANDS, f8_program
from tests.runtime.gpu.product_epilogues import check_outputs, compiled_for_gpu


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("scales", [0, 1, 2])
@pytest.mark.parametrize("relu", [False, True])
def test_scales_bias_and_relu(
    operands: tuple[str, str, int, int], scales: int, on_gpu: OnGpu, *, relu: bool
) -> None:
    program = f8_program(operands, scales=scales, bias=True, relu=relu)
    executable = on_gpu(compiled_for_gpu(program.text))
    check_outputs(executable, program, steps=3)  # launched, captured, replayed
    assert not executable.kernel_report.hosted
