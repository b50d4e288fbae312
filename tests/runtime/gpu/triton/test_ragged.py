"""Kernels of ragged products in Triton's interpreter, next to the reference evaluator."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from runtime.gpu.triton.refusal import NoTritonKernelError
from tests.runtime.gpu.triton.interpret import Interpreter
from tests.runtime.gpu.triton.ragged import CASES, Ragged, of_depth, of_rows
from tests.runtime.gpu.triton.running import (
    dense_views,
    expected,
    in_order,
    largest_error,
    run_kernels,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
#: Largest error relative to the largest element, by type of the result.
BOUNDS = {"f32": 2e-6, "bf16": 6e-3, "f16": 1e-3}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as made:
        yield made


def check(interpreter: Interpreter, case: Ragged) -> None:
    arrays = case.inputs()
    operands, results = dense_views(case.text)
    got = run_kernels(interpreter, [case.kernel()], arrays, [*operands, *results])
    wanted = expected(case.text, arrays)
    assert largest_error(got, wanted) < BOUNDS[case.kinds[2]]


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, interpreter: Interpreter) -> None:
    check(interpreter, CASES[name])


def test_more_columns_than_a_strip(interpreter: Interpreter) -> None:
    check(interpreter, of_rows([130, 3], 140, 16, 1200, kinds=("bf16", "bf16", "f32")))


@pytest.mark.parametrize(
    "case", [of_rows([9, 0, 20], 40, 24, 30), of_depth([9, 0, 20], 40, 24, 30)]
)
def test_arrays_of_any_layout(case: Ragged, interpreter: Interpreter) -> None:
    arrays = case.inputs()
    views = [in_order(one, tuple(reversed(range(one.ndim))), 4) for one in arrays]
    views.append(in_order(np.zeros(case.result, np.float32), (1, 0, 2)[: len(case.result)], 8))
    got = run_kernels(interpreter, [case.kernel(views)], arrays, views)
    assert largest_error(got, expected(case.text, arrays)) < BOUNDS["f32"]


def test_nan_reaches_only_its_group(interpreter: Interpreter) -> None:
    for case in (of_rows([9, 7, 20], 40, 24, 30), of_depth([9, 7, 20], 40, 24, 30)):
        arrays = case.inputs()
        for factor in arrays[:2]:
            factor[10 if len(factor) == 40 else 1] = np.nan
        operands, results = dense_views(case.text)
        got = run_kernels(interpreter, [case.kernel()], arrays, [*operands, *results])
        wanted = expected(case.text, arrays)
        assert np.isnan(wanted[0]).any()
        assert largest_error(got, wanted) < BOUNDS["f32"]


def test_tf32_follows_the_program_and_the_option() -> None:
    exact = CASES["rows"]
    rough = replace(exact, precision="")
    assert '"tf32"' in rough.kernel().text
    assert '"ieee"' in rough.kernel(tf32=False).text
    assert '"ieee"' in exact.kernel().text
    assert "input_precision" not in CASES["rows in bf16"].kernel().text


def test_small_groups_have_small_blocks() -> None:
    many, few = (of_rows([8] * g, 8 * g, 64, 64, kinds=("bf16",) * 3) for g in (64, 1))
    assert many.kernel().programs == 512 // 16 + 65
    assert few.kernel().programs == 2
    assert "tl.zeros([16, 64]" in many.kernel().text


def test_offsets_of_64_bits() -> None:
    case = of_rows([1 << 11] * 9, 9 << 11, 1 << 14, 1 << 14, kinds=("bf16",) * 3)
    text = case.kernel().text
    assert "group.to(tl.int64) * 268435456" in text
    assert "rows[:, None] * 16384" in text


@pytest.mark.parametrize("kind", ["s32", "f64"])
def test_types_without_a_kernel(kind: str) -> None:
    with pytest.raises(NoTritonKernelError, match=f"a product of {kind}"):
        of_rows([4, 4], 8, 8, 8, kinds=(kind,) * 3, precision="").kernel()
