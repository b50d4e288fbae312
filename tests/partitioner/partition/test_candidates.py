"""Tests of the cost of an op's candidates: demanded results, and axes that the op pushes out of a dimension."""

from __future__ import annotations

from partitioner.spmd_partitioner import partition_module
from spmd.analysis.cost import module_cost
from spmd.text.parser import parse_module

LESS = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}"""


def traffic(text: str, devices: int = 4) -> dict[str, tuple[int, float]]:
    """Return for each kind of collective how many there are, and the bytes that a device sends."""
    cost = module_cost(partition_module(parse_module(text), devices))
    return {kind: (c.count, c.wire_bytes) for kind, c in cost.collectives.items()}


def sorted_along_columns(rows: int, sharding: str) -> str:
    return f"""HloModule m
{LESS}
ENTRY e {{
  x = f32[{rows},64] parameter(0), sharding={{devices=[1,4]<=[4]}}
  ROOT y = f32[{rows},64] sort(x), dimensions={{1}}, to_apply=less, sharding={sharding}
}}"""


def test_rows_are_dealt_out_to_be_sorted_whole() -> None:
    """Two exchanges of 3/4 of a tile of 64 x 16 floats instead of a gather of three tiles."""
    assert traffic(sorted_along_columns(64, "{devices=[1,4]<=[4]}")) == {
        "all-to-all": (2, 2 * 3072.0)
    }


def test_one_exchange_where_the_result_is_wanted_by_rows() -> None:
    assert traffic(sorted_along_columns(64, "{devices=[4,1]<=[4]}")) == {"all-to-all": (1, 3072.0)}


def test_without_rows_to_deal_out_the_whole_is_gathered() -> None:
    assert traffic(sorted_along_columns(1, "{devices=[1,4]<=[4]}")) == {"all-gather": (1, 192.0)}


def test_a_result_that_is_demanded_whole_is_not_computed_in_parts() -> None:
    """The row split is the cheaper of the two only as long as nobody asks what the result costs afterwards."""
    text = """HloModule m
ENTRY e {
  x = f32[256,2] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[2,256] parameter(1), sharding={replicated}
  ROOT y = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}"""
    found = traffic(text)
    assert set(found) == {"all-gather"}
    assert found["all-gather"][1] == 256 * 2 * 4 * 3 / 4


LOOP = """HloModule m
body {
  s = (s32[], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[256,256] get-tuple-element(s), index=1
  z = f32[256,256] negate(y)
  ROOT t = (s32[], f32[256,256]) tuple(j, z)
}
condition {
  s = (s32[], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[256,2] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[2,256] parameter(1), sharding={replicated}
  y = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = s32[] constant(0)
  start = (s32[], f32[256,256]) tuple(zero, y)
  r = (s32[], f32[256,256]) while(start), condition=condition, body=body, sharding={{replicated}, {replicated}}
  ROOT out = f32[256,256] get-tuple-element(r), index=1
}"""


def test_what_a_loop_carries_is_demanded_too() -> None:
    assert traffic(LOOP) == {"all-gather": (1, 256 * 2 * 4 * 3 / 4)}
