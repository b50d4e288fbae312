"""Thunks compute what the reference evaluator computes, on one device and on several."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    COLLECTIVES,
    assert_same,
    compiled,
    module_of,
    random_inputs,
)


@pytest.mark.parametrize("keep_order", [False, True])
@pytest.mark.parametrize("name", ALIASING)
def test_one_device(name: str, keep_order: bool) -> None:
    executable = compiled(ALIASING[name], keep_order=keep_order)
    for seed in range(3):
        inputs = random_inputs(executable.module, seed)
        assert_same(executable.run(*inputs), evaluate(module_of(ALIASING[name]), *inputs))


@pytest.mark.parametrize("text", [COLLECTIVES, ASYNC_COLLECTIVES], ids=["blocking", "async"])
def test_collectives(text: str) -> None:
    executable = compiled(text, keep_order=True)
    per_device = [random_inputs(executable.module, seed) for seed in range(executable.num_devices)]
    want = evaluate_partitions(module_of(text), per_device)
    for _ in range(2):
        for got, wanted in zip(executable.run_devices(per_device), want, strict=True):
            assert_same(got, wanted)


def test_inputs_are_left_alone() -> None:
    """Donation concerns the program's own buffers; the caller's arrays are copied in."""
    executable = compiled(ALIASING["donated"])
    inputs = random_inputs(executable.module)
    before = [x.copy() for x in inputs]
    executable.run(*inputs)
    for x, y in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_run_is_repeated_bit_by_bit() -> None:
    executable = compiled(ALIASING["nested_update"])
    inputs = random_inputs(executable.module)
    first, second = executable.run(*inputs), executable.run(*inputs)
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]
