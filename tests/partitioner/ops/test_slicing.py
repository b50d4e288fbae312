"""Sharding rules of slices, pads and concatenations."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

RULES = {
    "r = f32[4,3] slice(f32[4,6] x), slice={[0:4], [1:4]}": "ab~->ab~",
    "r = f32[4,2] slice(f32[4,6] x), slice={[0:4], [1:3]}": "ab->aC b:sum",
    "r = f32[4,3] slice(f32[4,6] x), slice={[0:4], [1:6:2]}": "ab~->ab~",
    "r = f32[4,2] slice(f32[4,6] x), slice={[0:4], [1:5:2]}": "ab~->ab~",
    "r = f32[4,8] pad(f32[4,6] x, f32[] p), padding=0_0x1_1": "ab~,->ab~",
    "r = f32[4,11] pad(f32[4,6] x, f32[] p), padding=0_0x0_0_1": "ab~,->ab~",
    "r = f32[4,9] concatenate(f32[4,6] x, f32[4,3] y), dimensions={1}": "ab~,aC->ab~",
    "r = f32[4,6] concatenate(f32[4,3] x, f32[4,3] y), dimensions={1}": "aB,aC->aD",
    "r = f32[4,2] dynamic-slice(f32[4,6] x, s32[] i, s32[] j), dynamic_slice_sizes={4,2}": "ab,,->aC b:sum",
    "r = pred[2] dynamic-slice(pred[4] x, s32[] i), dynamic_slice_sizes={2}": "a,->B a:or",
    "r = f32[4,6] dynamic-update-slice(f32[4,6] x, f32[4,2] u, s32[] i, s32[] j)": "ab,aC,,->ab",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]
