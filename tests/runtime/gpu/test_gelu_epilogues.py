"""Products with gelu or its gradient are one call of cuBLASLt, on a double of a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.options import GpuOptions
from runtime.gpu.report import KernelReport
from runtime.program.gemm_epilogue import Activation
from spmd.evaluator.evaluator import evaluate
from tests.runtime.gpu.gelu_programs import FORMS, gelu_program, gradient_program
from tests.runtime.gpu.product_epilogues import Program, compiled_for_gpu
from tests.runtime.gpu.test_product_epilogues import noted, report
from tests.runtime.programs import module_of, random_inputs

KINDS = ["f32", "bf16", "f16"]
GELU, GRADIENT = Activation.GELU, Activation.GELU_GRADIENT


def check(program: Program, activation: Activation | None, *, aux: bool, kernels: int = 0) -> None:
    """Run ``program`` on a double: one call with this activation, or a product and ``kernels``."""
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    inputs = random_inputs(module_of(program.text))
    wanted = evaluate(module_of(program.text), *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        wide = want.astype(np.float64)
        tolerance = program.tolerance * np.abs(wide).max()
        np.testing.assert_allclose(got.astype(np.float64), wide, 0, tolerance)
    (call,) = (call for work in works for call in work.calls)
    found = call.epilogue
    assert (found and found.activation, found is not None and found.aux) == (activation, aux)
    assert report(executable) == KernelReport(kernels, 1, ())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_gelu(form: str, kind: str, *, bias: bool) -> None:
    check(gelu_program(form, kind, bias=bias), GELU, aux=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
def test_gelu_whose_argument_is_read_later(kind: str, *, bias: bool) -> None:
    check(gelu_program("jax", kind, bias=bias, keeps=True), GELU, aux=True)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient(kind: str) -> None:
    check(gradient_program(kind), GRADIENT, aux=True)


def test_sizes_that_the_library_does_not_take() -> None:
    """The sizes along the columns of gelu's arguments are multiples of 8; gelu alone has no such array."""
    check(gelu_program(columns=36), GELU, aux=False)
    check(gelu_program(columns=36, keeps=True), None, aux=False, kernels=1)
    check(gradient_program(columns=36), None, aux=False, kernels=1)


def test_types_that_the_library_does_not_take() -> None:
    check(gelu_program("jax", "f64"), None, aux=False, kernels=1)


@pytest.mark.parametrize(
    "program", [gelu_program(), gelu_program(bias=True, keeps=True), gradient_program()]
)
def test_without_epilogues(program: Program) -> None:
    """The program is the same; the product goes into memory, and a kernel in PTX reads it."""
    executable = compiled_for_gpu(program.text)
    works = noted(executable, GpuOptions(epilogues=False))
    inputs = random_inputs(module_of(program.text))
    for got, want in zip(
        executable.run(*inputs), evaluate(module_of(program.text), *inputs), strict=True
    ):
        np.testing.assert_allclose(got, want, 0, program.tolerance * np.abs(want).max())
    assert all(call.epilogue is None for work in works for call in work.calls)
    assert not report(executable).hosted


def test_the_gradient_does_not_overwrite_gelus_argument() -> None:
    """A loop may write over what it reads at the same index; nothing states that cuBLASLt may."""
    program = gradient_program()
    aliased = program.text.replace(
        "HloModule gelu", "HloModule gelu, input_output_alias={{}: (2, {}, may-alias)}"
    )
    executable = compiled_for_gpu(aliased)
    works = noted(executable)
    inputs = random_inputs(module_of(program.text))
    (want,) = evaluate(module_of(program.text), *inputs)
    (got,) = executable.run(*inputs)
    np.testing.assert_allclose(got, want, 0, 1e-5 * np.abs(want).max())
    (work,) = works
    assert work.aux is not None
    assert work.aux.first != work.result.first
