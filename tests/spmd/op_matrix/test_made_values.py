"""Tests of values without operands: constants of every element type, the ids of devices, the generator's state."""

from __future__ import annotations

import math

import pytest

from spmd.evaluator import evaluate_partitions
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.spmd.op_matrix.formats import COMPLEX
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, run
from tests.spmd.op_matrix.values import ALL_TYPES, values


def written(x):
    """A scalar as HLO's text has it."""
    if isinstance(x, bool):
        return str(x).lower()
    return f"({written(x.real)}, {written(x.imag)})" if isinstance(x, complex) else repr(x)


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_constants(kind):
    xs = values(kind)
    rows = ", ".join(f"{{{written(x)}}}" for x in xs)
    (got,) = run(f"ROOT c = {kind}[{len(xs)},1] constant({{{rows}}})")
    want = array(kind, xs, (len(xs), 1))
    assert got.dtype == want.dtype
    for g, x in zip(scalars(got), scalars(want), strict=True):
        parts = ((g.real, x.real), (g.imag, x.imag)) if kind in COMPLEX else ((g, x),)
        assert all((a != a and b != b) or (a == b and sign(a) == sign(b)) for a, b in parts), x
    (nothing,) = run(f"ROOT c = {kind}[0,2] constant({{}})")
    assert (nothing.shape, nothing.dtype) == ((0, 2), want.dtype)


def sign(x):
    return math.copysign(1, x)


def test_ids():
    """Devices are numbered replica by replica."""
    text = (
        "HloModule m, num_partitions=3, replica_count=2\nENTRY e {\np = u32[] partition-id()\n"
        "r = u32[] replica-id()\nROOT t = (u32[], u32[]) tuple(p, r)\n}"
    )
    module = parse_module(text)
    verify(module)
    each = evaluate_partitions(module, [[] for _ in range(6)])
    assert [(int(p), int(r)) for p, r in each] == [(d % 3, d // 3) for d in range(6)]
