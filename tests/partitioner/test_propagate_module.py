"""The module that shows what propagation found."""

from __future__ import annotations

import spmd
from partitioner.propagate_module import propagate_module
from spmd.hlo import Stage

DOT = """HloModule m
ENTRY main {
  x = f32[8,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = f32[4,6] parameter(1), sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  ROOT y = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_dot_takes_rows_from_one_side_and_columns_from_the_other() -> None:
    module = spmd.parse(DOT)
    found = propagate_module(module, 4)
    assert found.stage is Stage.PROPAGATED
    assert str(found.entry.root.sharding) == "{devices=[2,2]<=[4]}"
    assert module.entry.root.sharding is None, "the module itself stays as it is"


def test_manual_axes_are_written_as_manual() -> None:
    text = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}
ENTRY main {
  a = f32[4,4] parameter(0)
  e = (f32[2,4]) custom-call(a), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}, {?}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}
  l = f32[2,4] get-tuple-element(e), index=0
  n = f32[2,4] negate(l)
  o = (f32[4,4]) custom-call(n), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}, {?}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}
  ROOT r = f32[4,4] get-tuple-element(o), index=0
}
"""
    found = propagate_module(spmd.parse(text), 4)
    (negate,) = [i for i in found.entry.instructions if i.name == "n"]
    assert str(negate.sharding) == "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}"
