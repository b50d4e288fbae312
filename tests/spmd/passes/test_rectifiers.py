"""Comparisons of a rectifier's input: which are asked of its output instead, and that the answers are the same."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import Opcode
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from tests.spmd.passes.test_algebraic import RECTIFIED, arguments, program


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            "r = f32[4,6] maximum(a, zeros); g = pred[4,6] compare(a, zeros), direction=GT; "
            "f32[4,6] select(g, r, b)",
            id="a parameter stays in memory",
        ),
        pytest.param(
            f"{RECTIFIED}; g = pred[4,5] compare(y, zs), direction=GE; f32[4,5] select(g, r, ws)",
            id="zero would be another answer",
        ),
        pytest.param(
            f"{RECTIFIED}; g = pred[4,5] compare(y, zs), direction=GT; t = f32[4,5] select(g, r, ws); "
            "f32[4,5] multiply(t, z)",
            id="the product is needed later",
        ),
        pytest.param(
            f"{RECTIFIED}; g = pred[4,5] compare(y, zs), direction=GT, type=TOTALORDER; "
            "f32[4,5] select(g, r, ws)",
            id="-0 comes before 0",
        ),
    ],
)
def test_inputs_of_rectifiers_that_are_kept(lines: str) -> None:
    module = program(lines)
    AlgebraicSimplifier().run(module)
    (compared,) = module.entry.with_opcode(Opcode.COMPARE)
    assert Opcode.MAXIMUM not in [x.opcode for x in compared.operands]


def test_an_input_to_which_a_residual_is_added() -> None:
    """The residual, which is read again later, is in memory anyway; the product is not."""
    module = program(
        f"{RECTIFIED}; residual = f32[4,5] exponential(r); "
        "z2 = f32[4,5] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}; "
        "sum = f32[4,5] add(residual, z2); m = f32[4,5] maximum(sum, zs); "
        "g = pred[4,5] compare(sum, zs), direction=GT; t = f32[4,5] select(g, m, ws); "
        "f32[4,5] multiply(t, residual)"
    )
    values = arguments()
    expected = evaluate(module, *values)
    AlgebraicSimplifier().run(module)
    (compared,) = module.entry.with_opcode(Opcode.COMPARE)
    assert compared.operand(0).opcode is Opcode.MAXIMUM
    np.testing.assert_array_equal(evaluate(module, *values), expected)


def test_rectified_nan_is_not_positive() -> None:
    module = program(
        f"{RECTIFIED}; g = pred[4,5] compare(y, zs), direction=GT; f32[4,5] select(g, r, ws)"
    )
    values = arguments()
    values[0][0, 0], values[0][1, 0] = np.nan, -0.0
    expected = evaluate(module, *values)
    AlgebraicSimplifier().run(module)
    np.testing.assert_array_equal(evaluate(module, *values), expected)
