"""Sharding rules of convolutions, and the group counts of the per-device clone."""

from __future__ import annotations

import pytest
from rule_notation import root_of, rule_text

from partitioner.ops.convolution import local_group_counts
from spmd.ops.attrs import ConvolutionAttrs

RULES = {
    "r = f32[4,8,6] convolution(f32[4,8,3] x, f32[2,3,6] w), window={size=2 pad=0_1}, "
    "dim_labels=b0f_0io->b0f": "ab~c,Dce->ab~e c:sum",
    # A filter gradient: the image's batch stands where features are contracted.
    "r = f32[3,2,6] convolution(f32[4,8,3] x, f32[4,7,6] g), window={size=7}, "
    "dim_labels=f0b_i0o->b0f": "ab~c,ab~d->cEd a:sum b:sum",
    "r = f32[4,8,6] convolution(f32[4,8,4] x, f32[2,2,6] w), window={size=2 pad=0_1}, "
    "dim_labels=b0f_0io->b0f, feature_group_count=2": "ab~(cd),Ed(cf)->ab~(cf) d:sum",
    "r = f32[2,8,6] convolution(f32[4,8,3] x, f32[2,3,6] w), window={size=2 pad=0_1}, "
    "dim_labels=b0f_0io->b0f, batch_group_count=2": "(ab)c~d,Ed(af)->bc~(af) d:sum",
    "r = f32[4,8,6] convolution(f32[4,8,3] x, f32[1,3,6] w), window={size=1}, "
    "dim_labels=b0f_0io->b0f": "abc,.cd->abd c:sum",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "groups"),
    [
        ((4, 8, 4), (2, 2, 6), (4, 8, 6), (2, 1)),
        ((4, 8, 2), (2, 2, 3), (4, 8, 3), (1, 1)),
        ((4, 8, 1), (2, 1, 3), (4, 8, 3), (1, 1)),
        ((4, 8, 2), (2, 2, 3), (2, 8, 3), (1, 2)),
    ],
)
def test_local_groups_follow_from_local_sizes(
    lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], groups: tuple[int, int]
) -> None:
    whole = root_of(
        "r = f32[4,8,6] convolution(f32[4,8,4] x, f32[2,2,6] w), window={size=2 pad=0_1}, "
        "dim_labels=b0f_0io->b0f, feature_group_count=2"
    )
    numbers = whole.attrs_as(ConvolutionAttrs).dimension_numbers
    assert local_group_counts(numbers, lhs, rhs, out) == groups
