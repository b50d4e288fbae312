"""Tests of fft, cholesky, triangular-solve and batch normalization at edge values, on every type that they take.

Empty dimensions are tested, too. A value that is not finite must reach exactly the results that depend on it: matrices,
columns, features and transforms stand side by side, and one of them has such a value. Finite results are compared with
sums written out in Fractions.
"""

from __future__ import annotations

import cmath
import math
from fractions import Fraction

import pytest

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS
from tests.spmd.op_matrix.judge import same_but_zero_sign, scalars
from tests.spmd.op_matrix.run import array, run
from tests.spmd.op_matrix.test_linear import near, transformed
from tests.spmd.op_matrix.values import edges

REAL = tuple(FLOATS)
#: Types with a zero: without one no matrix is triangular and no variance is 0 (see the declared cells).
SOLVED = tuple(k for k in (*REAL, *COMPLEX) if k != "f8e8m0fnu")


def finite(x):
    return cmath.isfinite(x)


def one(kind):
    return 1.0 + 0j if kind in COMPLEX else 1.0


# ---- triangular-solve
@pytest.mark.parametrize("kind", SOLVED)
@pytest.mark.parametrize("left", [True, False])
def test_what_is_solved_for_passes_an_identity(kind, left):
    """In 1 x = b and x 1 = b every edge value comes back, in its own place."""
    bs = edges(kind)
    size = f"1,{len(bs)}" if left else f"{len(bs)},1"
    body = (
        f"a = {kind}[1,1] parameter(0)\nb = {kind}[{size}] parameter(1)\nROOT r = {kind}[{size}] triangular-solve(a, b), "
        f"left_side={str(left).lower()}, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"
    )
    dims = tuple(map(int, size.split(",")))
    (got,) = run(body, array(kind, [one(kind)], (1, 1)), array(kind, bs, dims))
    for b, g in zip(bs, scalars(got), strict=True):
        assert g == b or not (finite(b) or finite(g)), (kind, b, g)


@pytest.mark.parametrize("kind", SOLVED)
def test_pivots(kind):
    """Systems of 1x1 matrices give b / a, whatever a is."""
    form = FLOATS[COMPLEX.get(kind, kind)]
    pivots = [a for a in edges(kind) if kind not in COMPLEX or finite(a)]
    n = len(pivots)
    body = (
        f"a = {kind}[{n},1,1] parameter(0)\nb = {kind}[{n},1,1] parameter(1)\nROOT r = {kind}[{n},1,1] triangular-solve(a, b), "
        "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"
    )
    given = array(kind, pivots, (n, 1, 1))
    (got,) = run(body, given, given)
    for a, g in zip(pivots, scalars(got), strict=True):
        if finite(a) and a != 0:
            assert abs(g - 1) <= 4 * 2.0**-form.mantissa, (kind, a, g)
        elif form.flavour != "finite":
            assert g != g or cmath.isnan(g), (kind, a, g)  # 0 / 0 and inf / inf


@pytest.mark.parametrize("kind", SOLVED)
def test_the_triangle_that_is_not_read(kind):
    """Any value may stand in that triangle."""
    body = (
        f"a = {kind}[2,2] parameter(0)\nb = {kind}[2,1] parameter(1)\nROOT r = {kind}[2,1] triangular-solve(a, b), "
        "left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE"
    )
    for odd in edges(kind):
        a = array(kind, [odd, odd, one(kind), odd], (2, 2))
        (got,) = run(body, a, array(kind, [one(kind), 2 * one(kind)], (2, 1)))
        assert scalars(got) == [1, 1], (kind, odd)


# ---- cholesky
@pytest.mark.parametrize("kind", SOLVED)
def test_roots(kind):
    """Matrices of 1x1 give the square root of a positive number, NaN for others, and infinity for infinity."""
    part = COMPLEX.get(kind, kind)
    form = FLOATS[part]
    xs = edges(kind)
    n = len(xs)
    body = f"x = {kind}[{n},1,1] parameter(0)\nROOT r = {kind}[{n},1,1] cholesky(x), lower=true"
    got = scalars(run(body, array(kind, xs, (n, 1, 1)))[0])
    for x, g in zip(xs, got, strict=True):
        pivot = complex(x).real  # the diagonal of a Hermitian matrix is real
        if pivot > 0 and math.isfinite(pivot):
            assert abs(complex(g).real - math.sqrt(pivot)) <= 2 * form.ulp(math.sqrt(pivot))
        elif pivot > 0:
            assert complex(g).real == math.inf, (kind, x, g)
        elif form.flavour != "finite":
            assert cmath.isnan(complex(g)), (kind, x, g)


@pytest.mark.parametrize("kind", SOLVED)
@pytest.mark.parametrize("lower", ["true", "false"])
def test_one_bad_matrix_of_two(kind, lower):
    """diag(4, 1) stands beside a matrix with an edge value below (above) its diagonal."""
    body = f"x = {kind}[2,2,2] parameter(0)\nROOT r = {kind}[2,2,2] cholesky(x), lower={lower}"
    for odd in edges(kind):
        bad = [4, 0, odd, 1] if lower == "true" else [4, odd, 0, 1]
        (got,) = run(body, array(kind, [*bad, 4, 0, 0, 1], (2, 2, 2)))
        first, second = scalars(got)[:4], scalars(got)[4:]
        assert second == [2, 0, 0, 1], (kind, odd)
        if finite(odd) and abs(odd) < 1e-3:
            assert near(kind, [first[0], first[3]], [2, 1]), (kind, odd, first)
        elif not finite(odd) and FLOATS[COMPLEX.get(kind, kind)].flavour != "finite":
            assert all(map(cmath.isnan, map(complex, first))), (kind, odd, first)


@pytest.mark.parametrize("kind", [*REAL, *COMPLEX])
def test_no_matrices_and_no_columns(kind):
    body = (
        f"x = {kind}[0,2,2] parameter(0)\na = {kind}[2,2] parameter(1)\nb = {kind}[2,0] parameter(2)\n"
        f"c = {kind}[0,2,2] cholesky(x), lower=true\nd = {kind}[2,0] triangular-solve(a, b), left_side=true, lower=true, "
        "unit_diagonal=false, transpose_a=NO_TRANSPOSE\n"
        f"ROOT r = ({kind}[0,2,2], {kind}[2,0]) tuple(c, d)"
    )
    ones = array(kind, [one(kind)] * 4, (2, 2))
    got = run(body, array(kind, [], (0, 2, 2)), ones, array(kind, [], (2, 0)))
    assert [g.shape for g in got] == [(0, 2, 2), (2, 0)]


# ---- fft
SHAPES = {"FFT": (4, 4), "IFFT": (4, 4), "RFFT": (4, 3), "IRFFT": (3, 4)}


def transform(which, kind, rows, xs):
    real = COMPLEX[kind]
    source = real if which == "RFFT" else kind
    target = real if which == "IRFFT" else kind
    n, m = SHAPES[which]
    body = f"x = {source}[{rows},{n}] parameter(0)\nROOT r = {target}[{rows},{m}] fft(x), fft_type={which}, fft_length={{4}}"
    return scalars(run(body, array(source, xs, (rows, n)))[0])


def spectrum(which, xs):
    """Return the transform as sums; a spectrum of a real signal is completed by its conjugates."""
    if which == "IRFFT":
        xs = [xs[0].real, xs[1], xs[2].real, xs[1].conjugate()]
        return [v.real / 4 for v in transformed(xs, 1)]
    out = transformed(xs, 1 if which == "IFFT" else -1)
    return [v / 4 for v in out] if which == "IFFT" else out[: SHAPES[which][1]]


@pytest.mark.parametrize("kind", COMPLEX)
@pytest.mark.parametrize("which", SHAPES)
def test_transforms_of_edge_values(kind, which):
    """Every result of a row depends on every element of it; the row beside it does not."""
    real = COMPLEX[kind]
    source = real if which == "RFFT" else kind
    n, m = SHAPES[which]
    plain = [complex(i, 0) if which != "RFFT" else float(i) for i in range(n)]
    for odd in edges(source):
        row = [odd, *plain[1:]]
        got = transform(which, kind, 2, [*row, *plain])
        assert near(kind, got[m:], spectrum(which, plain)), (which, odd)
        if not finite(odd.real if which == "IRFFT" else odd):
            assert not any(map(finite, got[:m])), (which, odd, got)
        elif max(abs(complex(odd).real), abs(complex(odd).imag)) < 1e30:
            assert near(kind, got[:m], spectrum(which, row)), (which, odd)


@pytest.mark.parametrize("kind", COMPLEX)
@pytest.mark.parametrize("which", SHAPES)
def test_transforms_keep_their_scale(kind, which):
    """The transform of zeros is zero.

    The least numbers, and the greatest ones whose sum is finite, give multiples of the transform of 1.
    """
    form = FLOATS[COMPLEX[kind]]
    n, _ = SHAPES[which]
    tiny = math.ldexp(1.0, form.least_exponent - form.mantissa)
    great = float(form.largest) / 8
    for unit in (0.0, -0.0, 64 * tiny, great):
        ones = [1.0] + [0.0] * (n - 1)  # every transform of it is flat
        got = transform(which, kind, 1, [u * unit for u in ones])
        flat = unit / (4 if which.startswith("I") else 1)
        slack = 0 if unit in (0.0, 64 * tiny) else 1e-6 * great
        assert all(abs(g - flat) <= slack for g in got), (which, unit, got)


@pytest.mark.parametrize("kind", COMPLEX)
@pytest.mark.parametrize("which", SHAPES)
def test_no_transforms(kind, which):
    assert transform(which, kind, 0, []) == []


# ---- batch normalization
def normalise(x, mean, variance, scale, offset, epsilon):
    """Return the normalized value, computed in double precision, in which values of f32 do not overflow."""
    return (x - mean) / math.sqrt(variance + epsilon) * scale + offset


def held(kind, x):
    return FLOATS[kind].round(float(x))


@pytest.mark.parametrize("kind", REAL)
def test_inference_at_edge_values(kind):
    """With mean 0 (or 1 in a type without zero) and variance 1, each result depends on one element alone."""
    form = FLOATS[kind]
    xs, mean = edges(kind), held(kind, 0.0 if form.flavour != "unsigned" else 1.0)
    body = "\n".join(
        [f"x = {kind}[{len(xs)},1] parameter(0)"]
        + [f"p{i} = {kind}[1] parameter({i})" for i in range(1, 5)]
        + [f"ROOT r = {kind}[{len(xs)},1] batch-norm-inference(x, p1, p2, p3, p4), epsilon=0, feature_index=1"]
    )  # fmt: skip
    vectors = [array(kind, [v]) for v in (1.0, mean, mean, 1.0)]
    got = scalars(run(body, array(kind, xs, (len(xs), 1)), *vectors)[0])
    for x, g in zip(xs, got, strict=True):
        want = held(kind, FLOATS["f32" if kind != "f64" else "f64"].round(x - mean) + mean)
        assert g == want or (g != g and want != want), (kind, x, g, want)


@pytest.mark.parametrize("kind", [k for k in REAL if k != "f8e8m0fnu"])
def test_statistics_at_edge_values(kind):
    """One of two features has an edge value: its mean and variance are those in Fractions, or NaN.

    The other feature is untouched.
    """
    form = FLOATS[kind]
    wide = FLOATS["f64" if kind == "f64" else "f32"]
    body = (
        f"x = {kind}[2,2,1] parameter(0)\ns = {kind}[2] parameter(1)\no = {kind}[2] parameter(2)\n"
        f"ROOT r = ({kind}[2,2,1], {kind}[2], {kind}[2]) batch-norm-training(x, s, o), epsilon=0.5, feature_index=1"
    )
    ones = array(kind, [1, 1])
    for odd in edges(kind):
        out, mean, variance = map(
            scalars, run(body, array(kind, [odd, 1, odd, 3], (2, 2, 1)), ones, ones)
        )
        assert (mean[1], variance[1]) == (2, 1), (kind, odd)
        assert near(kind, [out[1], out[3]], [1 - 1 / math.sqrt(1.5), 1 + 1 / math.sqrt(1.5)])
        if not finite(odd):
            assert variance[0] != variance[0] or form.flavour == "finite", (kind, odd)
            assert not finite(mean[0]), (kind, odd)
        elif 2 * abs(Fraction(odd)) <= wide.largest:
            assert (mean[0], variance[0], out[0], out[2]) == (odd, 0, 1, 1), (kind, odd)
        else:
            assert math.isinf(mean[0]), (kind, odd)


@pytest.mark.parametrize("kind", [k for k in REAL if k != "f8e8m0fnu"])
def test_gradients_at_edge_values(kind):
    """The gradient of a feature without spread is grad_output less its mean.

    The gradients of scale and offset are sums of it.
    """
    wide = FLOATS["f64" if kind == "f64" else "f32"]
    body = "\n".join(
        [f"x = {kind}[2,2,1] parameter(0)"]
        + [f"p{i} = {kind}[2] parameter({i})" for i in (1, 2, 3)]
        + [
            f"g = {kind}[2,2,1] parameter(4)",
            f"ROOT r = ({kind}[2,2,1], {kind}[2], {kind}[2]) batch-norm-grad(x, p1, p2, p3, g), epsilon=0, feature_index=1",
        ]
    )
    ones, zeros = array(kind, [1, 1]), array(kind, [0, 0])
    x = array(kind, [1, 1, -1, -1], (2, 2, 1))
    for odd in edges(kind):
        along, scale, offset = map(
            scalars, run(body, x, ones, zeros, ones, array(kind, [odd, 2, odd, 2], (2, 2, 1)))
        )
        assert (along[1], along[3], scale[1]) == (0, 0, 0), (kind, odd)
        assert offset[1] == held(kind, 4), (kind, odd)
        if not finite(odd):
            assert not finite(along[0]) or FLOATS[kind].flavour == "finite", (kind, odd)
            assert not finite(offset[0]), (kind, odd)
        elif 2 * abs(Fraction(odd)) <= wide.largest:
            assert (along[0], along[2], scale[0]) == (0, 0, 0), (kind, odd)
            assert same_but_zero_sign(offset[0], held(kind, 2 * odd)), (kind, odd)


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize(("rows", "features"), [(0, 2), (3, 0)])
def test_nothing_to_normalise(kind, rows, features):
    """Statistics over no elements are 0 / 0, sums over none are 0, and no features give no results."""
    x, f = f"{kind}[{rows},{features}]", f"{kind}[{features}]"
    heads = f"x = {x} parameter(0)\n" + "".join(f"p{i} = {f} parameter({i})\n" for i in range(1, 5))
    empty, ones = array(kind, [], (rows, features)), array(kind, [1] * features)
    tail = ", epsilon=1, feature_index=1"
    training = f"t = ({x}, {f}, {f}) batch-norm-training(x, p1, p2){tail}\n"
    inference = f"i = {x} batch-norm-inference(x, p1, p2, p3, p4){tail}\n"
    gradient = f"g = ({x}, {f}, {f}) batch-norm-grad(x, p1, p2, p3, x){tail}\n"
    root = f"ROOT r = (({x}, {f}, {f}), {x}, ({x}, {f}, {f})) tuple(t, i, g)"
    got = run(heads + training + inference + gradient + root, empty, *[ones] * 4)
    sizes = [rows * features, features, features]
    assert [g.size for g in got] == [*sizes, rows * features, *sizes]
    has_nan = FLOATS[kind].flavour != "finite"
    assert all(v != v or not has_nan for v in (*scalars(got[1]), *scalars(got[2])))
    zero = FLOATS[kind].round(0.0)
    assert all(v == zero or zero != zero for v in (*scalars(got[5]), *scalars(got[6])))
