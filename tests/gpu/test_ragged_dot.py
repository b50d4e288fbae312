"""Ragged products by Triton kernels are what the reference evaluator computes of them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.text.parser import parse_module
from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.product_epilogues import compiled_for_gpu
from tests.runtime.gpu.ragged_programs import GRADIENTS
from tests.runtime.gpu.triton.ragged import CASES, Ragged, even, of_depth, of_rows
from tests.runtime.gpu.triton.running import largest_error

#: Largest error relative to the largest element, by type of the result.
BOUNDS = {"f32": 1e-5, "bf16": 1e-2, "f16": 2e-3}
_BF16 = ("bf16", "bf16", "bf16")
LARGE = {
    "large rows": of_rows([*even(700, 7), 0, 90], 1000, 520, 640, kinds=_BF16),
    "large rows, transposed": of_rows(even(1000, 3), 1000, 512, 384, transposed=True, kinds=_BF16),
    "large rows in f32": of_rows(even(500, 7), 512, 256, 200),
    "rows that are not aligned": of_rows(even(500, 3), 501, 333, 201, kinds=_BF16),
    "large depth": of_depth([*even(900, 5), 0], 1000, 512, 640, kinds=_BF16),
    "large depth in f32": of_depth(even(500, 7), 512, 256, 200),
}


@pytest.fixture(autouse=True)
def _triton(is_double: bool) -> None:
    if not is_double and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install spmd-executor[gpu]")


@pytest.mark.parametrize("name", [*CASES, *LARGE])
def test_products(name: str, on_gpu: OnGpu) -> None:
    case: Ragged = (CASES | LARGE)[name]
    executable = on_gpu(compiled_for_gpu(case.text))
    arrays = case.inputs()
    wanted = evaluate(parse_module(case.text), *arrays)
    for _ in range(3):  # launched, captured, replayed
        assert largest_error(executable.run(*arrays), wanted) < BOUNDS[case.kinds[2]]
    assert executable.kernel_report is not None
    assert executable.kernel_report.hosted == ()


def test_sizes_change_between_steps(on_gpu: OnGpu) -> None:
    case = CASES["rows in bf16"]
    executable = on_gpu(compiled_for_gpu(case.text))
    *factors, _ = case.inputs()
    for sizes in ([90, 0, 131, 7], [0, 300, 0, 0], [1, 2, 3, 4], [75, 75, 75, 75]):
        arrays = [*factors, np.array(sizes, np.int32)]
        wanted = evaluate(parse_module(case.text), *arrays)
        assert largest_error(executable.run(*arrays), wanted) < BOUNDS["bf16"]


def test_gradients_of_jax(on_gpu: OnGpu) -> None:
    executable = on_gpu(compiled_for_gpu(GRADIENTS))
    random = np.random.default_rng(0)
    kinds = [p.array_shape for p in parse_module(GRADIENTS).entry.parameters]
    factors = [
        random.standard_normal(one.dims).astype(np.float32).astype(one.element_type.numpy)
        for one in kinds[:2]
    ]
    arrays = [*factors, np.array([20, 0, 30, 9], np.int32)]
    wanted = evaluate(parse_module(GRADIENTS), *arrays)
    assert largest_error(executable.run(*arrays), wanted) < BOUNDS["bf16"]
    assert executable.kernel_report is not None
    assert executable.kernel_report.hosted == ()
