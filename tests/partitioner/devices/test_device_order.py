"""Meshes and device lists in another order than 0..n-1."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner.devices.device_order import device_order
from spmd.errors import ShardingError
from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence

MESH = """HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2, "y"=2], device_ids=[{ids}]>}}}}
ENTRY e {{
  a = f32[6,4] parameter(0), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{{\\"x\\"}}, {{\\"y\\"}}]>"}}
  b = f32[4,6] parameter(1), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{{\\"y\\"}}, {{}}]>"}}
  d = f32[6,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[6,6] custom-call(d), custom_call_target="xla.sdy.FuncResultSharding", frontend_attributes={{xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{{\\"y\\"}}, {{\\"x\\"}}]>]>"}}
}}"""

LISTED = """ENTRY e {
  a = f32[7,4] parameter(0), sharding={devices=[2,2]2,0,3,1}
  b = f32[7,4] parameter(1), sharding={devices=[4,1]2,0,3,1}
  s = f32[7,4] add(a, b)
  ROOT r = f32[7,4] negate(s), sharding={devices=[1,2,2]2,3,0,1 last_tile_dim_replicate}
}"""

REGION = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=4], device_ids=[2, 0, 3, 1]>}}
body {
  p = f32[2] parameter(0)
  i = u32[] partition-id()
  f = f32[] convert(i)
  v = f32[2] broadcast(f), dimensions={}
  moved = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  ROOT s = f32[2] add(v, moved)
}
ENTRY e {
  a = f32[8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"x\\"}]>"}
  in = (f32[2]) custom-call(a), custom_call_target="xla.sdy.GlobalToLocalShape", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}
  l = f32[2] get-tuple-element(in), index=0
  c = f32[2] call(l), to_apply=body
  out = (f32[8]) custom-call(c), custom_call_target="xla.sdy.LocalToGlobalShape", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>",xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>"}
  ROOT r = f32[8] get-tuple-element(out), index=0
}"""


@pytest.mark.parametrize("ids", ["3, 2, 1, 0", "2, 0, 3, 1", "0, 2, 1, 3"])
def test_a_mesh_of_any_order_is_right(ids: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((6, 4), (4, 6))]
    check_equivalence(parse_module(MESH.format(ids=ids)), 4, inputs)


def test_groups_name_devices_not_positions() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((6, 4), (4, 6))]
    program = check_equivalence(parse_module(MESH.format(ids="2, 0, 3, 1")), 4, inputs)
    text = str(program)
    assert "{2,0}" in text or "{0,2}" in text  # devices 2 and 0 share a row of the mesh
    assert "[2,2]<=[4]" not in text


def test_listed_shardings_of_one_order_are_right() -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((7, 4)).astype(np.float32) for _ in range(2)]
    check_equivalence(parse_module(LISTED), 4, inputs)


def test_partition_id_stays_the_device_and_pairs_stay_the_devices() -> None:
    check_equivalence(parse_module(REGION), 4, [np.arange(8, dtype=np.float32)])


def test_the_usual_order_adds_nothing() -> None:
    module = parse_module(MESH.format(ids="0, 1, 2, 3"))
    assert device_order(module, 4) is None
    program = check_equivalence(
        module, 4, [np.ones((6, 4), np.float32), np.ones((4, 6), np.float32)]
    )
    assert "u32[4]" not in str(program)  # no table of devices


def test_a_list_that_repeats_a_device_is_refused() -> None:
    module = parse_module("ENTRY e { ROOT a = f32[4] parameter(0), sharding={devices=[4]0,2,2,1} }")
    with pytest.raises(ShardingError, match="once"):
        device_order(module, 4)
