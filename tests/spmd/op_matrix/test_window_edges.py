"""Windows at edge values: what padding and holes do to infinities, which element is selected beside NaN, empty dimensions."""

from __future__ import annotations

import cmath
import itertools
import math

import pytest

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, run
from tests.spmd.op_matrix.test_reductions import NUMBERS, before, held, text_of
from tests.spmd.op_matrix.values import ALL_TYPES, edges


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k not in COMPLEX])
def test_selection_beside_edge_values(kind):
    """Each window keeps its first element unless ``kept >= next`` is false, as it is beside NaN."""
    pairs = list(itertools.product(edges(kind), repeat=2))
    n = len(pairs)
    other, one = {"pred": (False, True), "s1": (0, -1), "f8e8m0fnu": (2, 1)}.get(kind, (0, 1))
    body = (
        f"x = {kind}[{n},2] parameter(0)\ns = {kind}[{n},1] parameter(1)\ninit = {kind}[] parameter(2)\n"
        f"ROOT r = {kind}[{n},2] select-and-scatter(x, s, init), window={{size=1x2 stride=1x2}}, select=ge, scatter=second"
    )
    given = array(kind, [v for p in pairs for v in p], (n, 2))
    (got,) = run(
        body, given, array(kind, [one] * n, (n, 1)), array(kind, [other], ()), before=before(kind)
    )
    want = [v for a, b in pairs for v in ((one, other) if a >= b else (other, one))]
    assert scalars(got) == want


@pytest.mark.parametrize("kind", NUMBERS)
def test_padding_and_holes_are_zeros(kind):
    """They are multiplied like all others: an infinite tap over them gives NaN."""
    for odd in edges(kind):
        body = (
            f"x = {kind}[1,2,1] parameter(0)\nw = {kind}[2,1,1] parameter(1)\n"
            f"ROOT r = {kind}[1,4,1] convolution(x, w), window={{size=2 pad=1_1 lhs_dilate=2}}, dim_labels=b0f_0io->b0f"
        )
        one, none = held(kind, 1), held(kind, 0)
        (got,) = run(body, array(kind, [one, one], (1, 2, 1)), array(kind, [odd, none], (2, 1, 1)))
        # windows: (padding, x0), (x0, hole), (hole, x1), (x1, padding)
        over = odd if cmath.isfinite(odd) else math.nan
        wanted = [none * over, odd, none * over, odd]
        for g, want in zip(scalars(got), wanted, strict=True):
            assert g == want or not (cmath.isfinite(want) or cmath.isfinite(g)), (kind, odd)


#: lhs, kernel and result sizes; where the contracted features are none the result is zero.
EMPTY = (
    ((0, 3, 2), (2, 2, 1), (0, 2, 1)),
    ((2, 3, 0), (2, 0, 1), (2, 2, 1)),
    ((2, 3, 2), (2, 2, 0), (2, 2, 0)),
    ((2, 0, 2), (2, 2, 1), (2, 0, 1)),
)


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_convolutions_of_nothing(kind):
    for lhs, kernel, result in EMPTY:
        body = (
            f"x = {kind}[{text_of(lhs)}] parameter(0)\nw = {kind}[{text_of(kernel)}] parameter(1)\n"
            f"ROOT r = {kind}[{text_of(result)}] convolution(x, w), window={{size=2}}, dim_labels=b0f_0io->b0f"
        )
        fill = edges(kind)[0]
        (got,) = run(
            body,
            array(kind, [fill] * math.prod(lhs), lhs),
            array(kind, [fill] * math.prod(kernel), kernel),
        )
        assert got.shape == result, kind
        zero = FLOATS[kind].round(0.0) if kind in FLOATS else 0
        assert all(g == zero or zero != zero for g in scalars(got)), kind


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_selecting_from_nothing(kind):
    """Windows over no elements put nothing anywhere; no windows leave the initial value."""
    fill = edges(kind)[0]
    select = "first" if kind in COMPLEX else "ge"
    more = f"first {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT c = pred[] compare(a, b), direction=EQ }}\n"
    for size, windows in ((0, 0), (1, 0)):
        body = (
            f"x = {kind}[{size}] parameter(0)\ns = {kind}[{windows}] parameter(1)\ninit = {kind}[] parameter(2)\n"
            f"ROOT r = {kind}[{size}] select-and-scatter(x, s, init), window={{size=2 stride=2}}, select={select}, scatter=add"
        )
        given = array(kind, [fill] * size), array(kind, []), array(kind, [fill], ())
        (got,) = run(body, *given, before=before(kind) + more)
        assert got.tobytes() == given[0].tobytes(), kind
