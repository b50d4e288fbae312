"""Windows at edge values: what padding and holes do to infinities, which element is selected beside NaN, empty dimensions."""

from __future__ import annotations

import cmath
import itertools
import math

import pytest

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS
from tests.spmd.op_matrix.judge import same_but_zero_sign, scalars
from tests.spmd.op_matrix.real_functions import multiply
from tests.spmd.op_matrix.run import array, run
from tests.spmd.op_matrix.test_convert import ordered
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
def test_products_of_nothing(kind):
    """No rows, or no depth: then zero."""
    zero = FLOATS[kind].round(0.0) if kind in FLOATS else 0
    for m, k in ((0, 2), (2, 0)):
        body = (
            f"x = {kind}[{m},{k}] parameter(0)\ny = {kind}[{k},1] parameter(1)\nz = {kind}[1,{k},1] parameter(2)\n"
            f"g = s32[1] constant({{{m}}})\na = {kind}[{m},1] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
            f"b = {kind}[{m},1] ragged-dot(x, z, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}, lhs_ragged_dims={{0}},"
            f" rhs_group_dims={{0}}\nROOT r = ({kind}[{m},1], {kind}[{m},1]) tuple(a, b)"
        )
        fill = edges(kind)[0]
        parts = ((m, k), (k, 1), (1, k, 1))
        for got in run(body, *(array(kind, [fill] * math.prod(d), d) for d in parts)):
            assert got.shape == (m, 1), kind
            assert all(v == zero or zero != zero for v in scalars(got)), kind


@pytest.mark.parametrize("kind", FLOATS)
def test_scaled_products_of_edge_values(kind):
    """One term each, with scales of 1: the product as f32 has it, the sign of a zero aside."""
    pairs = list(itertools.product(edges(kind), repeat=2))
    for count in (len(pairs), 1, 0):
        xs, ys = [x for x, _ in pairs[:count]], [y for _, y in pairs[:count]]
        body = (
            f"x = {kind}[{count},1] parameter(0)\ny = {kind}[{count},1] parameter(1)\none = f32[] constant(1)\n"
            f"s = f32[{count},1] broadcast(one), dimensions={{}}\n"
            f"ROOT r = f32[{count}] scaled-dot(x, y, s, s), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},"
            " lhs_contracting_dims={1}, rhs_contracting_dims={1}"
        )
        (got,) = run(body, array(kind, xs, (count, 1)), array(kind, ys, (count, 1)))
        rounded = FLOATS["f32"].round
        for x, y, g in zip(xs, ys, scalars(got), strict=True):
            want = rounded(multiply(rounded(x), rounded(y)))
            assert same_but_zero_sign(g, want), (kind, x, y, g, want)


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k not in COMPLEX])
def test_the_largest_of_edge_values(kind):
    """The order is total: NaN before infinity (last where it has the sign bit), and 0 before -0.

    Equal values keep their order.
    """
    xs = [*edges(kind), *edges(kind)[:2]]
    n = len(xs)
    body = f"x = {kind}[1,{n}] parameter(0)\nROOT r = ({kind}[1,{n}], s32[1,{n}]) topk(x), k={n}, largest=true"
    found, at = run(body, array(kind, xs, (1, n)))
    key = (lambda i: ordered(xs[i], kind)) if kind in FLOATS else (lambda i: xs[i])
    order = sorted(range(n), key=key, reverse=True)
    assert scalars(at) == order, kind
    assert list(map(repr, scalars(found))) == [repr(xs[i]) for i in order]
    body = (
        f"x = {kind}[0,2] parameter(0)\nROOT r = ({kind}[0,1], s32[0,1]) topk(x), k=1, largest=true"
    )
    assert run(body, array(kind, [], (0, 2)))[0].shape == (0, 1)


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
