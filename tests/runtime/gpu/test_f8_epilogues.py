"""Products of 8-bit operands whose scales are numbers in memory, on a double of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.gpu.options import GpuOptions
from runtime.gpu.report import KernelReport
from spmd.shape import PrimitiveType
from tests.runtime.gpu.f8_programs import OPERANDS, f8_program
from tests.runtime.gpu.product_epilogues import check_outputs, compiled_for_gpu
from tests.runtime.gpu.test_product_epilogues import noted, report


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize(("result", "within"), [("bf16", "f32"), ("f32", "f32"), ("bf16", "bf16")])
@pytest.mark.parametrize("scales", [1, 2])
def test_scales(operands: tuple[str, str, int, int], result: str, within: str, scales: int) -> None:
    program = f8_program(operands, result, scales=scales, within=within)
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    check_outputs(executable, program)
    (call,) = (call for own in works for call in own.calls)
    assert call.epilogue is not None
    assert call.epilogue.scales == scales
    assert call.a_kind.byte_size == call.b_kind.byte_size == 1
    assert not report(executable).hosted


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scales", [0, 1])
def test_bias_and_relu(scales: int, *, relu: bool) -> None:
    program = f8_program(OPERANDS[1], scales=scales, bias=True, relu=relu)
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    check_outputs(executable, program)
    (call,) = (call for own in works for call in own.calls)
    assert call.epilogue is not None
    assert call.epilogue.bias
    assert report(executable) == KernelReport(0, 1, ())


def test_a_bias_of_f32_is_added_after_the_product() -> None:
    """A library adds narrow biases only to products of 8-bit operands."""
    program = f8_program(OPERANDS[1], "f32", bias=True)
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    check_outputs(executable, program)
    (call,) = (call for own in works for call in own.calls)
    assert call.epilogue is None or not call.epilogue.bias


@pytest.mark.parametrize("options", [GpuOptions(epilogues=False), GpuOptions(f8=False)])
def test_without_epilogues_or_f8(options: GpuOptions) -> None:
    program = f8_program(OPERANDS[0])
    executable = compiled_for_gpu(program.text)
    works = noted(executable, options)
    check_outputs(executable, program)
    assert all(call.epilogue is None for own in works for call in own.calls)
    assert not report(executable).hosted
    if not options.f8:
        assert {call.a_kind for own in works for call in own.calls} == {PrimitiveType.BF16}


def test_sizes_that_do_not_suit_are_multiplied_in_bf16() -> None:
    """A device may have fewer rows of a sharded array than cuBLASLt's 8-bit products need."""
    program = f8_program(OPERANDS[0])
    text = program.text.replace("[32,", "[8,")
    executable = compiled_for_gpu(text)
    works = noted(executable)
    check_outputs(executable, replace(program, text=text))
    assert {call.a_kind for own in works for call in own.calls} == {PrimitiveType.BF16}
    assert not report(executable).hosted
