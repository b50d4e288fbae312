"""Sharding rules of slices, pads and concatenations."""

from __future__ import annotations

import pytest
from rule_notation import root_of, rule_text

from partitioner.ops.slicing import local_slice_attrs
from spmd.ops.attrs import SliceAttrs
from spmd.shape import PrimitiveType, array

RULES = {
    "r = f32[4,3] slice(f32[4,6] x), slice={[0:4], [1:4]}": "ab~->ab~",
    "r = f32[4,2] slice(f32[4,6] x), slice={[0:4], [1:3]}": "ab->aC b:sum",
    "r = f32[4,3] slice(f32[4,6] x), slice={[0:4], [1:6:2]}": "a(bC)->ab",
    "r = f32[4,2] slice(f32[4,6] x), slice={[0:4], [1:5:2]}": "aB->aC",
    "r = f32[4,8] pad(f32[4,6] x, f32[] p), padding=0_0x1_1": "ab~,->ab~",
    "r = f32[4,11] pad(f32[4,6] x, f32[] p), padding=0_0x0_0_1": "aB,->aC",
    "r = f32[4,9] concatenate(f32[4,6] x, f32[4,3] y), dimensions={1}": "ab~,aC->ab~",
    "r = f32[4,6] concatenate(f32[4,3] x, f32[4,3] y), dimensions={1}": "aB,aC->aD",
    "r = f32[4,2] dynamic-slice(f32[4,6] x, s32[] i, s32[] j), dynamic_slice_sizes={4,2}": "ab,,->aC b:sum",
    "r = pred[2] dynamic-slice(pred[4] x, s32[] i), dynamic_slice_sizes={2}": "a,->B a:or",
    "r = f32[4,6] dynamic-update-slice(f32[4,6] x, f32[4,2] u, s32[] i, s32[] j)": "ab,aC,,->ab",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]


def test_local_slice_takes_whole_tiles_of_what_passes() -> None:
    slice_ = root_of("r = f32[8,4,2] slice(f32[8,8,6] x), slice={[0:8], [1:8:2], [1:3]}")
    local = local_slice_attrs(slice_, array(PrimitiveType.F32, 4, 2, 2))
    assert local == SliceAttrs((0, 1, 1), (4, 4, 3), (1, 2, 1))
