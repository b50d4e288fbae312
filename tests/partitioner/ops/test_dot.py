"""Sharding rules of dot and ragged-dot; capitals are factors that are not split."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

RULES = {
    "r = f32[2,4] dot(f32[2,3] x, f32[3,4] y), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}": "ab,bc->ac b:sum",
    "r = f32[5,2,4] dot(f32[5,2,3] x, f32[3,5,4] y), lhs_batch_dims={0}, rhs_batch_dims={1}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={0}": "abc,cad->abd c:sum",
    "r = f32[2,3] dot(f32[2] x, f32[3] y)": "a,b->ab",
    "r = f32[6,5] ragged-dot(f32[6,3] x, f32[2,3,5] y, s32[2] s), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}": "Ab,Cbd,E->Fd b:sum",
    "r = f32[2,3,5] ragged-dot(f32[6,3] x, f32[6,5] y, s32[2] s), lhs_contracting_dims={0}, "
    "rhs_contracting_dims={0}, lhs_ragged_dims={0}": "Ab,Cd,E->Fbd",
    "r = f32[4,6,5] ragged-dot(f32[4,6,3] x, f32[2,4,3,5] y, s32[4,2] s), lhs_batch_dims={0}, rhs_batch_dims={1}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={0}": "aBc,Dace,aF->aGe c:sum",
    "r = f32[2,4,3,5] ragged-dot(f32[4,7,6,3] x, f32[4,7,6,5] y, s32[4,7,2] s), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,2}, lhs_ragged_dims={2}": "abCd,abEf,abG->Hadf b:sum",
    "r = f32[] dot(f32[2,3] x, f32[3,2] y), "
    "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}": "ab,ba-> a:sum b:sum",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]
