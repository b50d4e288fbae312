"""A convolution and what is computed of it in the same call of cuDNN are what the reference evaluator computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.convolution_epilogues import NAN, random_program
from tests.runtime.gpu.product_epilogues import check_outputs, compiled_for_gpu
from tests.runtime.programs import module_of, random_inputs


@pytest.mark.parametrize("seed", range(36))
def test_random_epilogues(seed: int, on_gpu: OnGpu) -> None:
    program = random_program(seed)
    executable = on_gpu(compiled_for_gpu(program.text))
    check_outputs(executable, program, steps=3)  # launched, captured, replayed
    report = executable.kernel_report
    assert report is not None
    assert (report.library, report.hosted) == (1, ())


def test_relu_keeps_nan(on_gpu: OnGpu) -> None:
    """The front end asks cuDNN to propagate nan."""
    x, w = random_inputs(module_of(NAN))
    x[2] = np.nan
    (got,) = on_gpu(compiled_for_gpu(NAN)).run(x, w)
    assert np.isnan(got[2]).all()
    assert not np.isnan(np.delete(got, 2, axis=0)).any()
