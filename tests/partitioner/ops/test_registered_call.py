"""Custom calls whose sharding rule or partitioning a user registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.custom_call import register_custom_call
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction, Opcode
from tests.differential.equivalence import check_equivalence

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def _sum_columns(_: HloInstruction, operands: tuple[Any, ...]) -> Any:
    return operands[0].sum(axis=1)


register_custom_call(
    "test_row_sums",
    evaluate=_sum_columns,
    sharding_rule=lambda _: "#sdy.op_sharding_rule<([i, j])->([i]) {i=4, j=6} reduction={j}>",
)
register_custom_call("test_wrong_rule", sharding_rule=lambda _: "<([i])->([i]) {i=4}>")


def _on_tiles(call: HloInstruction, context: Any) -> Any:
    """The call doubles elements: wherever its operand lies."""
    value = context.value(call.operand(0))
    clone = context.target.create(
        Opcode.CUSTOM_CALL, value.hlo.shape, [value.hlo], call.attrs, name=call.name
    )
    return (replace(value, hlo=clone),)


register_custom_call(
    "test_doubled", evaluate=lambda _, operands: operands[0] * 2, partition=_on_tiles
)


def module(target: str, result: str, sharding: str) -> spmd.HloModule:
    return spmd.parse(
        f"""HloModule m
ENTRY main {{
  x = f32[4,6] parameter(0), sharding={sharding}
  ROOT c = {result} custom-call(x), custom_call_target="{target}"
}}
"""
    )


@pytest.mark.parametrize("sharding", ["{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"])
def test_a_rule_in_shardys_notation(sharding: str) -> None:
    """Rows pass through; sums of columns are added up."""
    found = check_equivalence(module("test_row_sums", "f32[4]", sharding), 2, [X])
    (call,) = [i for i in found.all_instructions() if i.opcode is Opcode.CUSTOM_CALL]
    assert call.operand(0).dims != (4, 6)


def test_a_partitioning_of_its_own() -> None:
    found = check_equivalence(module("test_doubled", "f32[4,6]", "{devices=[2,1]<=[2]}"), 2, [X])
    (call,) = [i for i in found.all_instructions() if i.opcode is Opcode.CUSTOM_CALL]
    assert call.dims == (2, 6)


def test_a_rule_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShardingError, match="the sharding rule of c does not fit"):
        spmd.partition(module("test_wrong_rule", "f32[4,6]", "{replicated}"), 2)
