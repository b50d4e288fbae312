"""Sharding rules of gather and scatter."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"
ASSIGN = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] copy(b) }"

GATHERS = {
    "r = f32[5,3,7] gather(f32[9,7] x, s32[5,3,1] i), offset_dims={2}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=2, slice_sizes={1,7}": "ab,cd.->cdb a:sum",
    "r = f32[5,4] gather(f32[9,7] x, s32[5,2] i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,4}": "aB,cD->cE a:sum",
    "r = f32[5,3] gather(f32[5,7] x, s32[5,3,1] i), offset_dims={}, collapsed_slice_dims={1}, "
    "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
    "index_vector_dim=2, slice_sizes={1,1}": "ab,ac.->ac b:sum",
    "r = f32[7,5] gather(f32[9,7] x, s32[5] i), offset_dims={0}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,7}": "ab,c->bc a:sum",
}


@pytest.mark.parametrize("text", GATHERS)
def test_gather_rule(text: str) -> None:
    assert rule_text(text) == GATHERS[text]


def scatter(combiner: str) -> str:
    return f"""HloModule m
{combiner}
ENTRY e {{
  x = f32[9,7] parameter(0)
  i = s32[5,1] parameter(1)
  u = f32[5,7] parameter(2)
  ROOT r = f32[9,7] scatter(x, i, u),
    update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}},
    index_vector_dim=1, to_apply=add
}}"""


def test_scatter_reduces_over_its_updates() -> None:
    assert rule_text(scatter(ADD)) == "ab,c.,cb->ab c:sum once:0"


def test_scatter_that_assigns_keeps_its_updates_in_order() -> None:
    assert rule_text(scatter(ASSIGN)) == "ab,C.,Db->ab"


def test_scatter_batching_dimensions_pass() -> None:
    text = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[5,7] parameter(0)
  i = s32[5,3,1] parameter(1)
  u = f32[5,3] parameter(2)
  ROOT r = f32[5,7] scatter(x, i, u),
    update_window_dims={{}}, inserted_window_dims={{1}}, scatter_dims_to_operand_dims={{1}},
    input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
    index_vector_dim=2, to_apply=add
}}"""
    assert rule_text(text) == "ab,ac.,ac->ab c:sum once:0"
