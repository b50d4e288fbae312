"""The public registry of custom calls."""

from __future__ import annotations

import numpy as np
import pytest

from spmd import custom_call as registry
from spmd.custom_call import CustomCall, custom_call, register_custom_call


@pytest.fixture(autouse=True)
def _own_targets(monkeypatch):
    monkeypatch.setattr(registry, "_CUSTOM_CALLS", dict(registry._CUSTOM_CALLS))


def test_registered_functions_evaluate(run):
    register_custom_call("twice", evaluate=lambda _, operands: operands[0] * 2)
    body = 'x = f32[3] parameter(0) ROOT r = f32[3] custom-call(x), custom_call_target="twice"'
    assert run(body, np.arange(3, dtype=np.float32))[0].tolist() == [0, 2, 4]


def test_parts_of_a_record_come_from_different_places():
    def evaluate(_instruction, operands):
        return operands[0]

    def rule(_instruction):
        return None

    register_custom_call("parts", evaluate=evaluate)
    register_custom_call("parts", sharding_rule=rule)
    assert custom_call("parts") == CustomCall(evaluate=evaluate, sharding_rule=rule)
    with pytest.raises(ValueError, match="parts: evaluate is registered twice"):
        register_custom_call("parts", evaluate=evaluate)


def test_unknown_targets_know_nothing():
    assert custom_call("never heard of") == CustomCall()


@pytest.mark.parametrize(
    "target", ["Sharding", "xla.sdy.FuncResultSharding", "MoveToHost", "MoveToDevice"]
)
def test_annotations_change_nothing(run, target):
    x = np.arange(3, dtype=np.float32)
    body = f'x = f32[3] parameter(0) ROOT r = f32[3] custom-call(x), custom_call_target="{target}", sharding={{replicated}}'
    np.testing.assert_array_equal(run(body, x)[0], x)


def test_topk(run):
    body = 'x = f32[4] parameter(0) ROOT r = (f32[2], s32[2]) custom-call(x), custom_call_target="TopK"'
    values, places = run(body, np.array([1, 5, 5, 2], np.float32))
    assert values.tolist() == [5, 5]
    assert places.tolist() == [1, 2]


@pytest.mark.parametrize(
    "target", ["ShardBarrierFrom", "ShardBarrierTo", "xla.sdy.PropagationBarrier"]
)
def test_barriers_of_sharding_propagation_are_their_operand(run, target):
    body = f'x = s32[3] parameter(0) ROOT r = s32[3] custom-call(x), custom_call_target="{target}"'
    assert run(body, np.arange(3, dtype=np.int32))[0].tolist() == [0, 1, 2]


def test_a_sharding_group_has_no_value(run):
    body = """x = s32[3] parameter(0)
    g = () custom-call(x), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true
    ROOT r = s32[3] negate(x)"""
    assert run(body, np.arange(3, dtype=np.int32))[0].tolist() == [0, -1, -2]
