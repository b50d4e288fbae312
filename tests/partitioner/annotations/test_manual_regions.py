"""Edges of manual regions in GSPMD's spelling, whole and in part."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.errors import ShardingError
from spmd.hlo import Opcode
from tests.differential.equivalence import check_equivalence

X = np.arange(24, dtype=np.float32).reshape(4, 6)
ROWS = "{devices=[2,1]<=[2]}"


def region(entry: str = f", sharding={ROWS}", leave: str = '"Sharding", sharding={manual}') -> str:
    """x is doubled in a region that is manual along its rows."""
    return f"""HloModule m
ENTRY main {{
  x = f32[4,6] parameter(0){entry}
  l = f32[2,6] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  d = f32[2,6] add(l, l)
  m = f32[2,6] custom-call(d), custom_call_target={leave}
  ROOT r = f32[4,6] custom-call(m), custom_call_target="SPMDShardToFullShape", sharding={ROWS}
}}
"""


def test_a_region_costs_nothing() -> None:
    found = check_equivalence(spmd.parse(region()), 2, [X])
    assert str(found.entry.root.sharding) == ROWS
    assert {i.opcode for i in found.entry.instructions} == {Opcode.PARAMETER, Opcode.ADD}


def test_an_exit_whose_operand_has_no_annotation_leaves_a_region_manual_throughout() -> None:
    text = region().replace(
        "custom-call(m), custom_call_target", "custom-call(d), custom_call_target"
    )
    check_equivalence(spmd.parse(text), 2, [X])


def test_sizes_that_no_sharding_gives_are_refused() -> None:
    with pytest.raises(ShardingError, match="l: dimension 0 is 4 globally and 2 inside"):
        spmd.partition(spmd.parse(region(entry="")), 2)


def test_free_axes_pass_through_a_partly_manual_region() -> None:
    """unspecified_dims leaves the free axis to propagation; it comes from the parameter, across the edge, to the root."""
    partly = "devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}"
    text = f"""HloModule m
ENTRY main {{
  x = f32[4,6] parameter(0), sharding={{devices=[2,2]<=[4]}}
  s = f32[4,6] custom-call(x), custom_call_target="Sharding", sharding={{devices=[2,1,2]<=[4] last_tile_dim_replicate}}, backend_config="unspecified_dims=[1]"
  l = f32[2,6] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={{{partly}}}, backend_config="unspecified_dims=[0,1]"
  d = f32[2,6] add(l, l)
  m = f32[2,6] custom-call(d), custom_call_target="Sharding", sharding={{{partly}}}, backend_config="unspecified_dims=[0,1]"
  ROOT r = f32[4,6] custom-call(m), custom_call_target="SPMDShardToFullShape", sharding={{devices=[2,1,2]<=[4] last_tile_dim_replicate}}, backend_config="unspecified_dims=[1]"
}}
"""
    found = check_equivalence(spmd.parse(text), 4, [X])
    assert str(found.entry.root.sharding) == "{devices=[2,2]<=[4]}"
    assert not [i for i in found.entry.instructions if i.opcode is Opcode.ALL_GATHER]


def test_a_mesh_may_be_written_in_the_shardings_of_a_region() -> None:
    mesh = r"mesh<[\"a\"=2, \"b\"=2]>"
    per_value = "#sdy.sharding_per_value"
    program = spmd.parse(f"""HloModule region
sum {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}}
ENTRY main {{
  x = f32[4,8] parameter(0)
  y = f32[8,6] parameter(1)
  edge = (f32[2,4], f32[4,6]) custom-call(x, y), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={{xla.sdy.in_shardings="{per_value}<[<{mesh}, [{{\\"a\\"}}, {{\\"b\\"}}]>, <{mesh}, [{{\\"b\\"}}, {{}}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{{\\"a\\", \\"b\\"}}>"}}
  u = f32[2,4] get-tuple-element(edge), index=0
  v = f32[4,6] get-tuple-element(edge), index=1
  d = f32[2,6] dot(u, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[2,6] all-reduce(d), channel_id=1, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true, to_apply=sum
  ROOT out = f32[4,6] custom-call(r), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={{xla.sdy.out_shardings="{per_value}<[<{mesh}, [{{\\"a\\"}}, {{}}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{{\\"a\\", \\"b\\"}}>"}}
}}""")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    y = np.arange(48, dtype=np.float32).reshape(8, 6)
    np.testing.assert_array_equal(spmd.evaluate(program, x, y)[0], x @ y)
    np.testing.assert_array_equal(spmd.compile(program).run(x, y)[0], x @ y)
