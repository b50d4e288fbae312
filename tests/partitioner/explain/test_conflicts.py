from __future__ import annotations

import explain_modules

import spmd
from partitioner.explain.explain import explain_module
from partitioner.explain.report import Conflict


def conflicts(text: str) -> tuple[Conflict, ...]:
    module = spmd.parse(text)
    return explain_module(module, module.num_partitions, max_tried=0).conflicts


def test_an_axis_that_two_indices_of_an_op_want() -> None:
    (found,) = conflicts(explain_modules.CONTESTED)
    assert (found.op, found.kind, found.winner) == ("product", "axis", "parameter x")
    assert found.text.startswith("w propagates axis ")
    assert "to dimension 1 of product, whose dimension 0 is split by it" in found.text


def test_an_index_that_two_tensors_split_by_different_axes() -> None:
    (found,) = conflicts(explain_modules.DISAGREEING)
    assert (found.op, found.kind, found.winner) == ("sum", "index", "x")


def test_agreement_is_no_conflict() -> None:
    assert conflicts(explain_modules.CONTRACTED) == ()


def test_user_priorities_are_named() -> None:
    """The larger operand waits, so that the smaller one's rows get the axis."""
    text = """
HloModule ranked, num_partitions=2, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2]>}}
ENTRY main {
  x = f32[64,32] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"x\\"}p1, {}]>"}
  w = f32[32,16] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\\"x\\"}]>"}
  ROOT product = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    (found,) = conflicts(text)
    assert (found.op, found.kind, found.winner) == ("product", "axis", "parameter w")
    assert found.text == (
        "x propagates axis x to dimension 0 of product, whose dimension 1 is split by it (priority 0 before 1)"
    )
