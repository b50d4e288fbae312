"""Tests of which programs have a form in double precision, and of the tolerance of a result that cancels."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.text.parser import parse_module
from tests.differential.equivalence import compare
from tests.differential.reference_f64 import evaluate_f64, widened_module

BITS = {
    "rng-bit-generator of whole numbers": (
        "k = u64[2] constant({1, 2})\n b = u32[3] rng-bit-generator(k), algorithm=rng_philox"
    ),
    "bitcast-convert of whole numbers": (
        "k = s32[3] constant({1, 2, 3})\n b = u32[3] bitcast-convert(k)"
    ),
}
FLOAT_BITS = {
    "bitcast-convert": "b = u32[3] bitcast-convert(x)",
    "rng": (
        "l = f32[] constant(0)\n h = f32[] constant(1)\n"
        " b = f32[3] rng(l, h), distribution=rng_uniform"
    ),
}

#: x + y - x, beside an operation.
PROGRAM = """HloModule m
ENTRY e {{
 x = f32[3] parameter(0)
 y = f32[3] parameter(1)
 {operation}
 sum = f32[3] add(x, y)
 rest = f32[3] subtract(sum, x)
 ROOT r = ({kind}, f32[3]) tuple(b, rest)
}}
"""


@pytest.mark.parametrize("name", BITS)
def test_bits_of_whole_numbers_do_not_depend_on_the_width(name: str) -> None:
    module = parse_module(PROGRAM.format(operation=BITS[name], kind="u32[3]"))
    x, y = np.full(3, 1e4, np.float32), np.full(3, 1e-3, np.float32)
    reference = evaluate_f64(module, [x, y])
    assert reference is not None
    np.testing.assert_allclose(reference[0][1], 1e-3, rtol=1e-6)
    bits, zero = np.zeros(3, np.uint32), np.zeros(3, np.float32)
    near = compare(module, [x, y], [bits, (x + y) - x], [bits, zero])
    far = compare(module, [x, y], [bits, (x + y) - x], [bits, zero + 1])
    assert near.inexact == 1
    assert near.worst < 1 < far.worst
    assert far.findings


@pytest.mark.parametrize("name", FLOAT_BITS)
def test_bits_of_floating_point_numbers_do(name: str) -> None:
    kind = FLOAT_BITS[name].rpartition("b = ")[2].split()[0]
    assert (
        widened_module(parse_module(PROGRAM.format(operation=FLOAT_BITS[name], kind=kind))) is None
    )


@pytest.mark.parametrize("name", FLOAT_BITS)
def test_outputs_beside_them_have_a_form_in_double_precision(name: str) -> None:
    """The tolerance covers the rounding of terms that cancel there, too."""
    kind = FLOAT_BITS[name].rpartition("b = ")[2].split()[0]
    module = parse_module(PROGRAM.format(operation=FLOAT_BITS[name], kind=kind))
    reference = evaluate_f64(module, [np.full(3, 1e4, np.float32), np.full(3, 1e-3, np.float32)])
    assert reference is not None
    (bits, rest), largest = reference
    assert bits is None
    assert rest is not None
    np.testing.assert_allclose(rest, 1e-3, rtol=1e-6)
    assert largest > 1e4
