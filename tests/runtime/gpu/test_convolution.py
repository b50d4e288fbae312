"""Convolutions as they are planned for cuDNN, done by a reading of its arguments."""

from __future__ import annotations

import pytest

from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.libraries.convolution_ways import ConvolutionKernel
from runtime.gpu.options import GpuOptions
from runtime.gpu.ptx import ptx_maker
from runtime.gpu.step import walk_steps
from runtime.gpu.steps.converted import ConvertedStep
from runtime.gpu.steps.kernel_step import KernelStep
from tests.runtime.gpu.convolutions import (
    TRAINING,
    check_convolution,
    compiled_convolution,
    random_convolution,
)
from tests.runtime.gpu.engines import devices_of
from tests.runtime.gpu.host_driver import HostDriver


def on_double(text: str, **options: bool) -> Executable:
    executable = compiled_convolution(text)
    executable.engine = GpuEngine(lambda _: HostDriver(), ptx_maker, GpuOptions(**options))
    return executable


def kernel_steps(executable: Executable) -> list[KernelStep]:
    """Return the steps that compute convolutions."""
    (device,) = devices_of(executable).devices
    return [
        step
        for step in walk_steps(device.plan)
        if isinstance(step, KernelStep) and isinstance(step.kernel, ConvolutionKernel)
    ]


@pytest.mark.parametrize("name", TRAINING)
def test_those_of_training_steps(name: str) -> None:
    text, direction = TRAINING[name]
    executable = on_double(text, graphs=False)
    (step,) = kernel_steps(executable)
    assert isinstance(step, ConvertedStep)
    assert step.call is not None
    assert step.call.kernel.direction.value == direction
    check_convolution(executable, text, 4e-3 if "f16" in text else 2e-5)


@pytest.mark.parametrize("seed", range(60))
def test_random_ones(seed: int) -> None:
    text, tolerance = random_convolution(seed)
    executable = on_double(text, graphs=False)
    assert [step.form for step in kernel_steps(executable)] == ["library"], text
    check_convolution(executable, text, tolerance)


def test_channels_last_need_no_copies_but_of_filters() -> None:
    (step,) = kernel_steps(on_double(TRAINING["forward"][0], graphs=False))
    assert isinstance(step, ConvertedStep)
    assert step.call is not None
    assert [one is None for one in step.call.operands] == [True, False]
    assert step.call.result is None


def test_without_cudnn_the_host_computes_them() -> None:
    text = TRAINING["forward"][0]
    executable = on_double(text, graphs=False, cudnn=False)
    assert [step.form for step in kernel_steps(executable)] == ["hosted"]
    check_convolution(executable, text, 2e-5)
