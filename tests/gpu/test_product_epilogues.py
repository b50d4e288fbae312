"""A product and what is computed of it in the same call of cuBLASLt are what the reference evaluator computes."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.report import KernelReport
from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.product_epilogues import (
    NAN,
    UPDATE,
    Program,
    check_outputs,
    compiled_for_gpu,
    random_program,
)
from tests.runtime.programs import module_of, random_inputs


@pytest.mark.parametrize("seed", range(42))
def test_random_epilogues(seed: int, on_gpu: OnGpu) -> None:
    program = random_program(seed)
    executable = on_gpu(compiled_for_gpu(program.text))
    check_outputs(executable, program, steps=3)  # launched, captured, replayed
    assert executable.kernel_report == KernelReport(0, 1, ())


def test_an_update_in_place(on_gpu: OnGpu) -> None:
    check_outputs(on_gpu(compiled_for_gpu(UPDATE)), Program(UPDATE, 1e-5), steps=3)


def test_relu_keeps_nan(on_gpu: OnGpu) -> None:
    """HLO's maximum gives nan for nan (docs/numerics.md); cuBLASLt's documentation does not say what its relu gives."""
    x, w = random_inputs(module_of(NAN))
    x[3] = np.nan
    (got,) = on_gpu(compiled_for_gpu(NAN)).run(x, w)
    assert np.isnan(got[3]).all()
    assert not np.isnan(np.delete(got, 3, axis=0)).any()
