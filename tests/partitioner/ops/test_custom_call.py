"""Sharding rules of custom calls: their own text, their target, or none."""

from __future__ import annotations

import pytest
from rule_notation import einsum, root_of, rule_text

from partitioner.ops.rule_text import parse_rule_text, rule_from_text
from partitioner.registry import rule_of
from spmd.errors import ShardingError

RULE = "#sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i]) {i=8, j=6, k=6, l=6, m=6}, custom>"
POTRF = (
    'r = (f32[8,6,6], s32[8]) custom-call(f32[8,6,6] x), custom_call_target="lapack_spotrf_ffi", '
    f'frontend_attributes={{xla.sdy.sharding_rule="{RULE}"}}'
)


def test_a_call_carries_its_rule() -> None:
    assert rule_text(POTRF) == "aBC->aDE,a"


def test_a_rule_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShardingError, match="does not fit"):
        rule_of(root_of(POTRF.replace("i=8", "i=4")))


def test_top_k_is_known_by_name() -> None:
    text = 'r = (f32[4,2], s32[4,2]) custom-call(f32[4,6] x), custom_call_target="TopK"'
    assert rule_text(text) == "aB->aC,aD"


def test_an_unknown_target_has_no_rule() -> None:
    assert rule_text('r = f32[4] custom-call(f32[4] x), custom_call_target="mystery"') == "none"


TEXTS = {
    "<([ij, k])->([i, jk]) {i=2, j=4, k=3}>": "(ab)c->a(bc)",
    "<([i, k], [k, j])->([i, j]) {i=2, j=4, k=3} reduction={k}>": "ab,bc->ac b:sum",
    "<([i, j])->([i, j]) {i=2, j=4} need_replication={j}>": "aB->aB",
    "<([i, j])->([i, j]) {i=2, j=4} permutation={i}, custom>": "Ab->Ab",
    "<([z_1, i], [])->([i]) {i=2, z_1=4}>": "Ab,->b",
}


@pytest.mark.parametrize("text", TEXTS)
def test_rule_text(text: str) -> None:
    assert einsum(rule_from_text("#sdy.op_sharding_rule" + text)) == TEXTS[text]


def test_blocked_factors_are_marked() -> None:
    rule = rule_from_text(
        "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4} blocked_propagation={j}>"
    )
    assert [factor.blocked for factor in rule.factors] == [False, True]


@pytest.mark.parametrize(
    "text", ["", "#sdy.op_sharding_rule<([i])->([i])>", "<([i, j])->([i]) {i=2}>"]
)
def test_text_that_is_no_rule(text: str) -> None:
    with pytest.raises(ShardingError):
        parse_rule_text(text)
