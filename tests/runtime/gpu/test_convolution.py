"""Convolutions as they are planned for cuDNN, done by a reading of its arguments."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.gpu.codegen.launch import ArgumentKind
from runtime.gpu.command import traverse_commands
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.call import KernelCall
from runtime.gpu.libraries.convolution_call import Direction, LibraryConvolution
from runtime.gpu.libraries.convolution_ways import ConvolutionKernel
from runtime.gpu.libraries.sequence import CallStage, KernelStage
from runtime.gpu.options import GpuOptions
from runtime.program.records.convolution_call import ConvolutionCallKernel
from spmd.evaluator.evaluator import evaluate
from tests.runtime.gpu.convolutions import (
    TRAINING,
    check_convolution,
    compiled_convolution,
    convolution,
    random_convolution,
)
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.product_epilogues import compiled_for_gpu
from tests.runtime.programs import module_of, random_inputs


def on_double(text: str, *, for_gpu: bool = False, **options: bool) -> Executable:
    """Return the program on a double. It was compiled for a CPU, or else for a GPU."""
    executable = (compiled_for_gpu if for_gpu else compiled_convolution)(text)
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker, GpuOptions(**options))
    return executable


def stages(executable: Executable) -> tuple[LibraryConvolution, list[KernelStage]]:
    """Return the call of cuDNN, and the kernels around it."""
    (command,) = kernel_commands(executable)
    assert isinstance(command, LibrarySequenceCommand)
    assert command.sequence is not None
    (called,) = [stage.call for stage in command.sequence.stages if isinstance(stage, CallStage)]
    assert isinstance(called, KernelCall)
    assert isinstance(called.kernel, LibraryConvolution)
    return called.kernel, [s for s in command.sequence.stages if isinstance(s, KernelStage)]


def kernel_commands(executable: Executable) -> list[KernelCommand]:
    """Return the commands that compute convolutions."""
    (device,) = devices_of(executable).devices
    return [
        command
        for command in traverse_commands(device.plan)
        if isinstance(command, KernelCommand)
        and isinstance(command.kernel, ConvolutionKernel | ConvolutionCallKernel)
    ]


@pytest.mark.parametrize("for_gpu", [False, True])
@pytest.mark.parametrize("name", TRAINING)
def test_those_of_training_steps(name: str, for_gpu: bool) -> None:
    text, direction = TRAINING[name]
    executable = on_double(text, for_gpu=for_gpu, graphs=False)
    call, kernels = stages(executable)
    assert call.direction.value == direction
    check_convolution(executable, text, 4e-3 if "f16" in text else 2e-5)
    if for_gpu and name in ("forward", "input", "filter", "three dimensions"):
        assert not kernels, "cuDNN reads and writes all arrays in place"


@pytest.mark.parametrize("for_gpu", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_ones(seed: int, for_gpu: bool) -> None:
    text, tolerance = random_convolution(seed)
    executable = on_double(text, for_gpu=for_gpu, graphs=False)
    assert [command.implementation for command in kernel_commands(executable)] == ["library"], text
    check_convolution(executable, text, tolerance)


def test_channels_last_need_no_copies_but_of_filters() -> None:
    _, (copy,) = stages(on_double(TRAINING["forward"][0], graphs=False))
    (place,) = copy.operands
    assert (place.kind, place.number) == (ArgumentKind.OPERAND, 1)


@pytest.mark.parametrize(
    ("operands", "result", "window", "labels"),
    [
        (
            ("f32[2,8,8,4]", "f32[1,1,4,8]"),
            "f32[2,4,4,8]",
            "size=1x1 stride=2x2",
            "b01f_01io->b01f",
        ),
        (
            ("f32[2,8,8,4]", "f32[2,4,4,8]"),
            "f32[1,1,4,8]",
            "size=4x4 pad=0_-1x0_-1 rhs_dilate=2x2",
            "f01b_i01o->01bf",
        ),
    ],
    ids=["forward", "filter"],
)
def test_an_image_whose_end_no_window_reads_is_not_copied(
    operands: tuple[str, str], result: str, window: str, labels: str
) -> None:
    text = convolution(*operands, result, window, labels)
    executable = on_double(text, graphs=False)
    call, kernels = stages(executable)
    assert call.image == (2, 4, 8, 8)
    assert all(
        (array.kind, array.number) != (ArgumentKind.OPERAND, 0)
        for kernel in kernels
        for array in kernel.operands
    )
    check_convolution(executable, text, 2e-5)


#: The gradient of the image of a convolution without strides, as JAX writes it.
REVERSED = """HloModule reversed

ENTRY e {
  dy = f32[2,7,8,8] parameter(0)
  w = f32[3,2,6,8] parameter(1)
  r = f32[3,2,6,8] reverse(w), dimensions={0,1}
  ROOT g = f32[2,7,8,6] convolution(dy, r), window={size=3x2 pad=1_1x1_0}, dim_labels=b01f_01oi->b01f
}
"""


def test_a_reversed_filter_is_that_of_the_forward_convolution() -> None:
    executable = on_double(REVERSED, for_gpu=True, graphs=False)
    call, kernels = stages(executable)
    assert call.direction is Direction.INPUT
    assert not kernels
    check_convolution(executable, REVERSED, 2e-5)
    assert executable.stats.temp == 3 * 2 * 6 * 8 * 4  # the transposed filter


def test_a_filter_is_copied_once_for_the_convolution_and_its_gradient() -> None:
    text = """HloModule both

ENTRY e {
  x = f32[2,7,8,6] parameter(0)
  dy = f32[2,7,8,8] parameter(1)
  w = f32[3,2,6,8] parameter(2)
  y = f32[2,7,8,8] convolution(x, w), window={size=3x2 pad=1_1x0_1}, dim_labels=b01f_01io->b01f
  r = f32[3,2,6,8] reverse(w), dimensions={0,1}
  g = f32[2,7,8,6] convolution(dy, r), window={size=3x2 pad=1_1x1_0}, dim_labels=b01f_01oi->b01f
  ROOT t = (f32[2,7,8,8], f32[2,7,8,6]) tuple(y, g)
}
"""
    executable = on_double(text, for_gpu=True, graphs=False)
    (device,) = devices_of(executable).devices
    report = device.kernel_report
    assert (report.ptx, report.library, report.hosted) == (1, 2, ())
    inputs = random_inputs(module_of(text))
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("for_gpu", [False, True])
@pytest.mark.parametrize("text", [*(text for text, _ in TRAINING.values()), REVERSED])
def test_without_cudnn_the_host_computes_them(text: str, for_gpu: bool) -> None:
    executable = on_double(text, for_gpu=for_gpu, graphs=False, cudnn=False)
    assert [command.implementation for command in kernel_commands(executable)] == ["hosted"]
    check_convolution(executable, text, 4e-3 if "f16" in text else 2e-5)
