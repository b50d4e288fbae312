"""Sharding rules of dot."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

RULES = {
    "r = f32[2,4] dot(f32[2,3] x, f32[3,4] y), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}": "ab,bc->ac b:sum",
    "r = f32[5,2,4] dot(f32[5,2,3] x, f32[3,5,4] y), lhs_batch_dims={0}, rhs_batch_dims={1}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={0}": "abc,cad->abd c:sum",
    "r = f32[2,3] dot(f32[2] x, f32[3] y)": "a,b->ab",
    "r = f32[] dot(f32[2,3] x, f32[3,2] y), "
    "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}": "ab,ba-> a:sum b:sum",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]
