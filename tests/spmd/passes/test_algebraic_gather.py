"""Gathers of computed values: only what is taken is computed, with equal results."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode, Stage
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.text.parser import parse_module
from spmd.verifier import verify

#: One element of each row, as the loss of a classification takes it.
ROWS = """HloModule t
ENTRY e {{
  x = bf16[3,4,20] parameter(0)
  i = s32[4,3,1,1] parameter(1)
  m = f32[{values}] parameter(2)
  y = f32[3,4,20] convert(x)
  mb = f32[3,4,20] broadcast(m), dimensions={{{dimensions}}}
  z = f32[3,4,20] subtract(y, mb)
  g = f32[4,3,1] gather(z, i), offset_dims={{}}, collapsed_slice_dims={{2}}, start_index_map={{2}}, operand_batching_dims={{0,1}}, start_indices_batching_dims={{1,0}}, index_vector_dim=3, slice_sizes={{1,1,1}}
  {rest}
}}
"""
#: Rows of a table.
TABLE = """HloModule t
ENTRY e {
  x = bf16[40,5] parameter(0)
  i = s32[3,1] parameter(1)
  y = f32[40,5] convert(x)
  ROOT g = f32[3,5] gather(y, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}
}
"""


def module_of(text: str) -> HloModule:
    module = parse_module(text)
    module.stage = Stage.PARTITIONED
    return module


def simplified(module: HloModule) -> bool:
    """Run the pass, which must not change what the module computes. Returns whether it changed anything."""
    random = np.random.default_rng(0)
    given = [
        (10 * random.standard_normal(shape.dims)).astype(shape.element_type.numpy)
        for shape in (x.array_shape for x in module.entry.parameters)
    ]
    want = evaluate(module, *given)
    changed = AlgebraicSimplifier().run(module)
    verify(module)
    for one, other in zip(evaluate(module, *given), want, strict=True):
        np.testing.assert_array_equal(one, other)
    return changed


@pytest.mark.parametrize(
    ("values", "dimensions"), [("3,4", "0,1"), ("4", "1"), ("", "")], ids=["rows", "one", "scalar"]
)
@pytest.mark.parametrize(
    "rest",
    [
        "ROOT r = f32[4,3,1] negate(g)",
        "n = f32[3,4,20] exponential(z)  ROOT r = (f32[4,3,1], f32[3,4,20]) tuple(g, n)",
    ],
    ids=["one reader", "another reader"],
)
def test_only_what_is_taken_is_computed(values: str, dimensions: str, rest: str) -> None:
    module = module_of(ROWS.format(values=values, dimensions=dimensions, rest=rest))
    assert simplified(module)
    (gather,) = module.entry.with_opcode(Opcode.GATHER)
    assert gather.operand(0).opcode is Opcode.PARAMETER


def test_rows_of_a_table_are_converted_after_they_are_taken() -> None:
    module = module_of(TABLE)
    assert simplified(module)
    assert module.entry.root.opcode is Opcode.CONVERT


@pytest.mark.parametrize(
    ("values", "dimensions", "rest"),
    [
        ("20", "2", "ROOT r = f32[4,3,1] negate(g)"),
        ("3,4", "0,1", "ROOT r = (f32[4,3,1], f32[3,4,20]) tuple(g, z)"),
    ],
    ids=["values that differ in a row", "needed in memory"],
)
def test_other_gathers_stay(values: str, dimensions: str, rest: str) -> None:
    module = module_of(ROWS.format(values=values, dimensions=dimensions, rest=rest))
    assert not simplified(module)
