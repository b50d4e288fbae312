"""Convolutions through cuDNN give what the evaluator gives."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.convolutions import (
    TRAINING,
    check_convolution,
    compiled_convolution,
    random_convolution,
)


@pytest.mark.parametrize("name", TRAINING)
def test_those_of_training_steps(name: str, on_gpu: OnGpu) -> None:
    text, _ = TRAINING[name]
    executable = on_gpu(compiled_convolution(text))
    assert not executable.kernel_report or not executable.kernel_report.hosted
    check_convolution(executable, text, 4e-3 if "f16" in text else 2e-5)


@pytest.mark.parametrize("seed", range(40))
def test_random_ones(seed: int, on_gpu: OnGpu) -> None:
    text, tolerance = random_convolution(seed)
    check_convolution(on_gpu(compiled_convolution(text)), text, tolerance)
