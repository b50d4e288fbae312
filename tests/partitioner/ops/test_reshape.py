"""Sharding rules of reshape, transpose, broadcast and reverse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_notation import rule_text

from partitioner.ops.reshape import refine

RULES = {
    "r = f32[3,4,2] transpose(f32[2,3,4] x), dimensions={1,2,0}": "abc->bca",
    "r = f32[2,5,3] broadcast(f32[2,3] x), dimensions={0,2}": "ab->acb",
    "r = f32[3,2] broadcast(f32[2] x), dimensions={1}": "a->ba",
    "r = f32[2,3] broadcast(f32[] x), dimensions={}": "->ab",
    "r = f32[2,3,1] reverse(f32[2,3,1] x), dimensions={1,2}": "abc->abc",
    "r = f32[24] reshape(f32[4,6] x)": "ab->(ab)",
    "r = f32[4,6] reshape(f32[24] x)": "(ab)->ab",
    "r = f32[2,4,6] reshape(f32[8,6] x)": "(ab)c->abc",
    "r = f32[4,1] reshape(f32[1,4] x)": ".a->a.",
    "r = f32[12,2] reshape(f32[4,3,2] x)": "abc->(ab)c",
    "r = f32[4,3] reshape(f32[6,2] x)": "(aB)C->(aD)E",
    "r = f32[3,2] reshape(f32[2,3] x)": "AB->CD",
    "r = f32[3,0] reshape(f32[0,5] x)": "AB->CD",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4)


@given(SIZES, st.randoms(use_true_random=False))
def test_parts_rebuild_both_shapes_in_order(source: list[int], random: object) -> None:
    target = _regroup(source, random)
    parts = refine(source, target)
    for sizes, side in ((source, "source"), (target, "target")):
        for d, size in enumerate(sizes):
            assert math.prod(p.size for p in parts if getattr(p, side) == d) == size
        order = [getattr(p, side) for p in parts if getattr(p, side) is not None]
        assert order == sorted(order)


def _regroup(source: list[int], random: object) -> list[int]:
    """Other sizes with the same product: prime factors, shuffled into groups."""
    primes = [p for n in source for p in {1: [], 2: [2], 3: [3], 4: [2, 2], 6: [2, 3]}[n]]
    random.shuffle(primes)  # type: ignore[attr-defined]
    groups: list[int] = []
    for p in primes:
        if groups and random.random() < 0.5:  # type: ignore[attr-defined]
            groups[-1] *= p
        else:
            groups.append(p)
    return groups
