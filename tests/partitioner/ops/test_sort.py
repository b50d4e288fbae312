"""Sharding rules of sort and top-k."""

from __future__ import annotations

import numpy as np
import pytest
from rule_notation import rule_text

from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence

LESS = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}"""


def test_sorted_dimension_is_needed_whole() -> None:
    text = f"""HloModule m
{LESS}
ENTRY e {{
  x = f32[4,6] parameter(0)
  y = s32[4,6] parameter(1)
  ROOT r = (f32[4,6], s32[4,6]) sort(x, y), dimensions={{0}}, to_apply=less
}}"""
    assert rule_text(text) == "Ab,Ab->Ab,Ab"


def test_topk_keeps_rows() -> None:
    text = "r = (f32[4,2], s32[4,2]) topk(f32[4,6] x), k=2, largest=true"
    assert rule_text(text) == "aB->aC,aD"


@pytest.mark.parametrize("tiles", ["2,1", "1,2"])
@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(3, 5, 0), (3, 6, 0), (3, 5, 1), (3, 5, 5), (3, 0, 0), (0, 5, 2), (0, 5, 0)],
)
def test_topk_of_nothing_or_of_few(rows: int, columns: int, k: int, tiles: str) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0), sharding={{devices=[{tiles}]<=[2]}}
  ROOT t = (f32[{rows},{k}], s32[{rows},{k}]) topk(x), k={k}
}}"""
    x = np.random.default_rng(0).permutation(rows * columns).reshape(rows, columns)
    check_equivalence(parse_module(text), 2, [x.astype(np.float32)])
