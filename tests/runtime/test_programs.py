"""Thunks compute what the reference evaluator computes, on one device and on several."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    ASYNC_WRAPPED,
    COLLECTIVES,
    OVER_OPERANDS,
    SHARING,
    SUM,
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


MEETING = {
    "blocking": COLLECTIVES,
    "async": ASYNC_COLLECTIVES,
    "wrapped": ASYNC_WRAPPED,
    "over operands": OVER_OPERANDS,
    **SHARING,
}


@pytest.mark.parametrize("name", MEETING)
def test_collectives(name: str) -> None:
    text = MEETING[name]
    executable = compiled(text, keep_order=True)
    per_device = [random_inputs(executable.module, seed) for seed in range(executable.num_devices)]
    want = evaluate_partitions(module_of(text), per_device)
    for _ in range(2):
        for got, wanted in zip(executable.run_devices(per_device), want, strict=True):
            assert_same(got, wanted)


REPLICAS = (
    """HloModule replicas, replica_count=2, num_partitions=2
"""
    + SUM
    + """
ENTRY main {
  x = f32[4] parameter(0)
  r = u32[] replica-id()
  p = u32[] partition-id()
  ten = u32[] constant(10)
  t = u32[] multiply(r, ten)
  s = u32[] add(t, p)
  f = f32[] convert(s)
  b = f32[4] broadcast(f), dimensions={}
  y = f32[4] add(x, b)
  across = f32[4] all-reduce(y), replica_groups={{0,1}}, to_apply=sum
  both = f32[4] all-reduce(y), channel_id=1, replica_groups={{0},{1}}, to_apply=sum
  all = f32[4] all-reduce(y), channel_id=2, replica_groups={{0,3},{1,2}}, use_global_device_ids=true, to_apply=sum
  cp = f32[4] collective-permute(y), source_target_pairs={{0,1}}
  ROOT o = (f32[4], f32[4], f32[4], f32[4]) tuple(across, both, all, cp)
}
"""
)


def test_replicas_are_an_outer_axis() -> None:
    """Every meaning that replica groups can have: across replicas, both, and flat device ids."""
    executable = compiled(REPLICAS)
    per_device = [[np.full(4, 100.0 * d, np.float32)] for d in range(4)]
    got = executable.run_devices(per_device)
    want = evaluate_partitions(module_of(REPLICAS), per_device)
    for outputs, wanted in zip(got, want, strict=True):
        assert_same(outputs, wanted)
    # Device 3 is replica 1, partition 1: its y is 300 + 11; across replicas it meets device 1 (100 + 1).
    assert got[3][0][0] == 311 + 101
    assert got[3][3][0] == 101


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
