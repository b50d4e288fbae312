"""Sharding rules of sort and top-k."""

from __future__ import annotations

from rule_notation import rule_text

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
