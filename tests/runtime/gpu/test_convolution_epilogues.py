"""Convolutions whose epilogue cuDNN computes in the same call, on a double of a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.report import KernelReport
from runtime.gpu.work import ConvolutionWork, Work
from spmd.evaluator.evaluator import evaluate
from tests.runtime.gpu.convolution_epilogues import NAN, random_program
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostStream
from tests.runtime.gpu.product_epilogues import Program, check_outputs, compiled_for_gpu
from tests.runtime.programs import module_of, random_inputs


class InTwo(HostDriver):
    """A GPU whose cuDNN has no kernel for a convolution and its epilogue."""

    def load(self, work: Work) -> Callable[[HostStream], None]:
        if not isinstance(work, ConvolutionWork) or work.otherwise is None:
            return super().load(work)
        first, then = super().load(work.without_epilogue), super().load(work.otherwise)

        def run(stream: HostStream) -> None:
            first(stream)
            then(stream)

        return run


def noted(executable: Executable, options: GpuOptions = DEFAULT) -> list[ConvolutionWork]:
    """Have ``executable`` run on a double; its convolutions are in the list once it is loaded."""
    works: list[ConvolutionWork] = []

    class Noting(HostDriver):
        def load(self, work: Work) -> Callable[[HostStream], None]:
            if isinstance(work, ConvolutionWork):
                works.append(work)
            return super().load(work)

    executable.engine = GpuEngine(lambda _: Noting(), launch_maker, options)
    return works


def report(executable: Executable) -> KernelReport:
    (device,) = devices_of(executable).devices
    return device.kernel_report


@pytest.mark.parametrize("seed", range(48))
def test_random_programs_are_one_call(seed: int) -> None:
    program = random_program(seed)
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    check_outputs(executable, program)
    found = report(executable)
    assert (found.library, found.hosted) == (1, ())
    assert found.ptx <= 1, "a copy of the filter"
    assert [work.convolution.epilogue is None for work in works] == [False]


@pytest.mark.parametrize("seed", range(12))
def test_cudnn_without_such_a_kernel(seed: int) -> None:
    """The convolution is then in the result's memory, where a kernel in PTX computes the rest."""
    program = random_program(seed)
    executable = compiled_for_gpu(program.text)
    executable.engine = GpuEngine(lambda _: InTwo(), launch_maker)
    check_outputs(executable, program, steps=3)


@pytest.mark.parametrize("options", [{"epilogues": False}, {"tf32": False}, {"cudnn": False}])
@pytest.mark.parametrize("seed", range(12))
def test_the_same_programs_without_epilogues(seed: int, options: dict[str, bool]) -> None:
    program = random_program(seed)
    executable = compiled_for_gpu(program.text)
    works = noted(executable, GpuOptions(**options))
    check_outputs(executable, program)
    in_one = [work.convolution.epilogue is not None for work in works]
    if options == {"tf32": False}:
        assert in_one == ["f32[" not in program.text.split("v0 =")[1].split(" convolution")[0]]
    else:
        assert in_one == ([] if "cudnn" in options else [False])
    assert len(report(executable).hosted) == ("cudnn" in options)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_programs_on_the_cpu(seed: int) -> None:
    program = random_program(seed)
    check_outputs(compiled_for_gpu(program.text), program)


def test_neither_the_convolution_nor_scratch_takes_memory() -> None:
    text = NAN.replace("b01f_01io", "b01f_o01i").replace("f32[3,3,8,8]", "f32[8,3,3,8]")
    executable = compiled_for_gpu(text)
    noted(executable)
    check_outputs(executable, Program(text, 1e-5))
    assert report(executable) == KernelReport(0, 1, ())
    assert executable.stats.temp == 0


def test_relu_keeps_nan() -> None:
    executable = compiled_for_gpu(NAN)
    (work,) = [noted(executable)]
    x, w = random_inputs(module_of(NAN))
    x[2] = np.nan
    (got,) = executable.run(x, w)
    assert np.isnan(got[2]).all()
    assert len(work) == 1


#: A convolution of f32[2,9,9,4] by f32[3,3,4,8] and what is computed of it; cuDNN does none of these in the same call.
APART = {
    "another function": "ROOT o = f32[2,7,7,8] tanh(y)",
    "a scale": """c = f32[] constant(0.5)
  cs = f32[2,7,7,8] broadcast(c), dimensions={}
  ROOT o = f32[2,7,7,8] multiply(y, cs)""",
    "a bias along lines": """l = f32[7] parameter(2)
  ls = f32[2,7,7,8] broadcast(l), dimensions={2}
  ROOT o = f32[2,7,7,8] add(y, ls)""",
    "a transposed addend": """r = f32[2,8,7,7] parameter(2)
  t = f32[2,7,7,8] transpose(r), dimensions={0,2,3,1}
  ROOT o = f32[2,7,7,8] add(y, t)""",
    "another type": "ROOT o = bf16[2,7,7,8] convert(y)",
    "two results": """n = f32[2,7,7,8] negate(y)
  e = f32[2,7,7,8] exponential(y)
  ROOT o = (f32[2,7,7,8], f32[2,7,7,8]) tuple(n, e)""",
}


@pytest.mark.parametrize("name", APART)
def test_what_the_library_does_not_compute(name: str) -> None:
    text = f"""HloModule apart

ENTRY e {{
  x = f32[2,9,9,4] parameter(0)
  w = f32[3,3,4,8] parameter(1)
  y = f32[2,7,7,8] convolution(x, w), window={{size=3x3}}, dim_labels=b01f_01io->b01f
  {APART[name]}
}}
"""
    executable = compiled_for_gpu(text)
    works = noted(executable)
    inputs = random_inputs(module_of(text))
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=1e-3
        )
    assert not report(executable).hosted
    assert [work.convolution.epilogue for work in works] == [None]


#: The gradient of a strided convolution's image, and that of a filter, with a residual: (shapes of x, w and the result,
#: window, labels, more attributes).
GRADIENTS = [
    ("4,7,7,8", "3,3,6,8", "4,13,14,6", "size=3x3 pad=1_1x2_1 lhs_dilate=2x2", "b01f_01oi->b01f"),
    ("2,13,14,6", "2,7,7,8", "3,3,6,8", "size=7x7 pad=1_1x0_1 rhs_dilate=2x2", "f01b_i01o->01bf"),
]


@pytest.mark.parametrize(("x", "w", "out", "window", "labels"), GRADIENTS, ids=["image", "filter"])
def test_gradients_have_no_epilogue(x: str, w: str, out: str, window: str, labels: str) -> None:
    text = f"""HloModule gradient

ENTRY e {{
  x = f32[{x}] parameter(0)
  w = f32[{w}] parameter(1)
  z = f32[{out}] parameter(2)
  y = f32[{out}] convolution(x, w), window={{{window}}}, dim_labels={labels}
  ROOT o = f32[{out}] add(y, z)
}}
"""
    executable = compiled_for_gpu(text)
    works = noted(executable)
    check_outputs(executable, Program(text, 1e-5))
    assert [work.convolution.epilogue for work in works] == [None]


def test_a_residual_that_is_the_image_itself() -> None:
    text = """HloModule residual

ENTRY e {
  x = f32[2,9,9,8] parameter(0)
  w = f32[3,3,8,8] parameter(1)
  y = f32[2,9,9,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT o = f32[2,9,9,8] add(x, y)
}
"""
    executable = compiled_for_gpu(text)
    works = noted(executable)
    check_outputs(executable, Program(text, 1e-5))
    (work,) = works
    assert work.addend is not None
    assert work.addend.first == work.first.first
