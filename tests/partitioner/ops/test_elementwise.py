"""Sharding rules of elementwise ops and leaves."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

RULES = {
    "r = f32[4,6] add(f32[4,6] a, f32[4,6] b)": "ab,ab->ab",
    "r = f32[4,6] select(pred[] p, f32[4,6] a, f32[4,6] b)": ",ab,ab->ab",
    "r = f32[4,6] select(pred[4,6] p, f32[4,6] a, f32[4,6] b)": "ab,ab,ab->ab",
    "r = f32[4] clamp(f32[] low, f32[4] x, f32[] high)": ",a,->a",
    "r = f32[] add(f32[] a, f32[] b)": ",->",
    "r = pred[4,6] compare(f32[4,6] a, f32[4,6] b), direction=LT": "ab,ab->ab",
    "r = bf16[4] convert(f32[4] a)": "a->a",
    "r = c64[4] complex(f32[4] a, f32[4] b)": "a,a->a",
    "r = f32[4,1] opt-barrier(f32[4,1] a)": "ab->ab",
    "r = u8[3,4] bitcast-convert(f32[3] a)": "a->aB",
    "r = f32[3] bitcast-convert(u8[3,4] a)": "aB->a",
    "r = s32[4,6] bitcast-convert(f32[4,6] a)": "ab->ab",
    "r = s32[4,6] iota(), iota_dimension=1": "->ab",
    "r = f32[4] constant({1, 2, 3, 4})": "->a",
    "r = (u64[2], u32[4]) rng-bit-generator(u64[2] s), algorithm=rng_three_fry": "none",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]
