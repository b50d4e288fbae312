"""Scatters of one element per row become selections, with equal results; other scatters stay."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.text.parser import parse_module
from spmd.verifier import verify

TEXT = """HloModule t
combine {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] {combine}(x, y)
}}
ENTRY e {{
  i = {index}[{rows},{vector}] parameter(0)
  u = f32[{rows}] parameter(1)
  start = f32[] constant({start})
  z = f32[{dims}] broadcast(start), dimensions={{}}
  ROOT s = f32[{dims}] scatter(z, i, u), update_window_dims={{}}, inserted_window_dims={{{column}}}, scatter_dims_to_operand_dims={{{column}}}, input_batching_dims={{{batching}}}, scatter_indices_batching_dims={{{pairs}}}, index_vector_dim={vector_dim}, to_apply=combine
}}
"""
USUAL = {
    "combine": "add",
    "index": "s32",
    "rows": "3,4",
    "vector": "1",
    "vector_dim": "2",
    "start": "2",
    "dims": "3,4,6",
    "column": "2",
    "batching": "0,1",
    "pairs": "0,1",
}


def module_of(**changes: str) -> HloModule:
    return parse_module(TEXT.format(**(USUAL | changes)))


def arguments(module: HloModule) -> list[np.ndarray]:
    """Indices of which some are outside of the rows, and updates."""
    random = np.random.default_rng(0)
    indices, updates = (x.array_shape for x in module.entry.parameters)
    return [
        random.integers(-2, 9, indices.dims).astype(indices.element_type.numpy),
        random.standard_normal(updates.dims).astype(np.float32),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rows": "3,4,1", "vector_dim": "3"},
        {"dims": "4,6,3", "column": "1", "batching": "0,2", "pairs": "1,0"},
        {"dims": "4,6,3", "column": "1", "batching": "2,0", "pairs": "0,1"},
        {"index": "u32"},
    ],
    ids=["rows", "dimension of size 1", "other order", "pairs in another order", "unsigned"],
)
def test_one_element_per_row_is_selected(changes: dict[str, str]) -> None:
    module = module_of(**changes)
    given = arguments(module)
    want = evaluate(module, *given)
    assert AlgebraicSimplifier().run(module)
    verify(module)
    assert module.entry.root.opcode is Opcode.SELECT
    np.testing.assert_array_equal(evaluate(module, *given), want)


@pytest.mark.parametrize(
    "changes",
    [{"rows": "3,4,2", "vector_dim": "3"}, {"combine": "maximum"}, {"index": "s8"}],
    ids=["two elements per row", "maximum", "narrow indices"],
)
def test_other_scatters_stay(changes: dict[str, str]) -> None:
    module = module_of(**changes)
    AlgebraicSimplifier().run(module)
    assert module.entry.root.opcode is Opcode.SCATTER
