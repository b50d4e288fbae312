"""The verifier refuses every element type that the tables do not allow, by name."""

from __future__ import annotations

import itertools

import pytest

from spmd.errors import SpmdError
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, SIGNED
from tests.spmd.op_matrix.run import program
from tests.spmd.op_matrix.values import ALL_TYPES


def refused(body: str) -> None:
    with pytest.raises(SpmdError) as error:
        verify(parse_module(program(body)))
    assert error.value.args


def read(body: str) -> None:
    verify(parse_module(program(body)))


@pytest.mark.parametrize("opcode", allowed.UNARY)
def test_unary(opcode):
    for kind in ALL_TYPES:
        out = allowed.result_type(opcode, kind)
        text = f"x = {kind}[2] parameter(0)\nROOT r = {out}[2] {opcode}(x)"
        (read if kind in allowed.UNARY[opcode] else refused)(text)


@pytest.mark.parametrize("opcode", allowed.BINARY)
def test_binary(opcode):
    for kind in ALL_TYPES:
        out = allowed.result_type(opcode, kind)
        text = f"x = {kind}[2] parameter(0)\nROOT r = {out}[2] {opcode}(x, x)"
        (read if kind in allowed.BINARY[opcode] else refused)(text)


@pytest.mark.parametrize("opcode", [*allowed.BINARY, "compare"])
def test_operands_of_two_types(opcode):
    attributes = ", direction=EQ" if opcode == "compare" else ""
    for kind, other in itertools.pairwise(ALL_TYPES):
        refused(
            f"x = {kind}[2] parameter(0)\ny = {other}[2] parameter(1)\n"
            f"ROOT r = {kind}[2] {opcode}(x, y){attributes}"
        )


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_compare(kind):
    right = {"": True, "FLOAT": kind in FLOATS or kind in COMPLEX, "TOTALORDER": kind in FLOATS}
    right |= {"SIGNED": kind in SIGNED, "UNSIGNED": kind[0] in "u" or kind == "pred"}
    for direction, (order, fits) in itertools.product(("EQ", "LT"), right.items()):
        extra = f", type={order}" if order else ""
        text = f"x = {kind}[2] parameter(0)\nROOT r = pred[2] compare(x, x), direction={direction}{extra}"
        allowed_here = fits and (kind not in COMPLEX or direction == "EQ")
        (read if allowed_here else refused)(text)


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_clamp_and_reduce_precision(kind):
    head = f"x = {kind}[2] parameter(0)\nROOT r = {kind}[2] "
    (refused if kind in COMPLEX else read)(head + "clamp(x, x, x)")
    (read if kind in FLOATS else refused)(
        head + "reduce-precision(x), exponent_bits=5, mantissa_bits=2"
    )


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_stochastic_convert(kind):
    for bits in (8, 16, 32, 64):
        text = (
            f"x = {kind}[2] parameter(0)\nu = u{bits}[2] parameter(1)\n"
            "ROOT r = s8[2] stochastic-convert(x, u)"
        )
        (read if kind in FLOATS and FLOATS[kind].bits == bits else refused)(text)
