"""Attention fusions by Triton kernels are what the reference evaluator computes of them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from runtime.gpu.driver import GpuDriver
from runtime.gpu.transfers.staging import Staging
from runtime.gpu.views import DeviceView
from tests.runtime.gpu.attention_calls import work_on
from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.running import dense_views, expected, largest_error

#: Largest error relative to the largest element. Kernels use the GPU's fast exponential and division.
BOUNDS = {"f32": 1e-5, "bf16": 1e-2, "f16": 2e-3}
CASES = {
    "f32": Attention(),
    "bf16": Attention(kind="bf16", s=300, t=400, d=64, e=64),
    "f16": Attention(kind="f16", s=300, t=400, d=128, e=128),
    "deep": Attention(kind="bf16", s=128, t=128, d=256, e=256),
    "causal": Attention(kind="bf16", s=512, t=512, d=64, e=64, mask="causal", hidden="-1e30"),
    "causal, -inf": Attention(kind="bf16", s=512, t=512, d=128, e=128, mask="causal"),
    "causal f32": Attention(s=300, t=300, mask="causal", hidden="-1e30", selects=False),
    "first rows see all": Attention(s=90, t=70, mask="late", hidden="-1e30", selects=False),
    "window": Attention(kind="bf16", s=300, t=300, mask="window", hidden="-1e30"),
    "bias": Attention(kind="bf16", mask="bias"),
    "grouped": Attention(kind="bf16", r=3, s=200, t=200, d=64, e=64, mask="causal"),
    "no visible key": Attention(kind="bf16", mask="padding"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["forward", "of_rows", "of_columns"])
def test_modes(name: str, mode: str, driver: GpuDriver, is_double: bool) -> None:
    if not is_double and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install spmd-executor[gpu]")
    case = CASES[name]
    text = getattr(case, mode)()
    arrays = case.inputs() if mode == "forward" else case.gradient_inputs()
    got = on_device(driver, text, arrays)
    assert largest_error(got, expected(text, arrays)) < BOUNDS[case.kind]


def on_device(driver: GpuDriver, text: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Run the kernel of the fusion twice, and return its results."""
    stream = driver.stream()
    staging = Staging(driver, stream)
    operands, results = dense_views(text)
    blocks = [driver.allocate(view.byte_size) for view in (*operands, *results)]
    for block, array in zip(blocks, arrays, strict=False):
        staging.send(block.address, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    placed = [
        DeviceView(block.address, view)
        for block, view in zip(blocks, (*operands, *results), strict=True)
    ]
    count = len(operands)
    enqueue = driver.load(work_on(text, placed[:count], placed[count:]))
    for _ in range(2):
        enqueue(stream)
    stream.synchronize()
    return [
        staging.fetch(one.address, one.view.dims, one.view.element_type.numpy)
        for one in placed[count:]
    ]
