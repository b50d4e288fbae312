"""Batch normalization, fft, cholesky, triangular-solve and rng on every element type they take, written out in sums.

Sums run in Python's double (or complex double) precision; a type narrower than f64 is allowed the error of its own.
"""

from __future__ import annotations

import cmath
import itertools
import math

import pytest

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, run

REAL = ("f16", "bf16", "f32", "f64")
INEXACT = (*REAL, *COMPLEX)


def near(kind, got, want, ulps=32):
    """Each element within ``ulps`` of the largest one's neighbourhood."""
    unit = 2.0 ** -FLOATS[COMPLEX.get(kind, kind)].mantissa
    scale = max([abs(w) for w in want] + [1e-30])
    return len(got) == len(want) and all(
        abs(g - w) <= ulps * unit * scale for g, w in zip(got, want, strict=True)
    )


def held(kind, xs):
    return (
        scalars(array(kind, xs)) if kind in COMPLEX else [FLOATS[kind].round(float(x)) for x in xs]
    )


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize(("rows", "features"), [(4, 2), (1, 3), (2, 1)])
def test_batch_norm(kind, rows, features):
    x = held(kind, [((i * 5) % 7) / 2 for i in range(rows * features)])
    scale, offset = held(kind, [1.5, -2, 0.5][:features]), held(kind, [0.25, 1, -1][:features])
    body = (
        f"x = {kind}[{rows},{features}] parameter(0)\ns = {kind}[{features}] parameter(1)\no = {kind}[{features}] parameter(2)\n"
        f"ROOT r = ({kind}[{rows},{features}], {kind}[{features}], {kind}[{features}]) batch-norm-training(x, s, o), epsilon=0.5, feature_index=1"
    )
    given = [array(kind, x, (rows, features)), array(kind, scale), array(kind, offset)]
    out, mean, variance = map(scalars, run(body, *given))
    means = [sum(x[f::features]) / rows for f in range(features)]
    variances = [sum((v - means[f]) ** 2 for v in x[f::features]) / rows for f in range(features)]
    want = [
        (v - means[i % features]) / math.sqrt(variances[i % features] + 0.5) * scale[i % features]
        + offset[i % features]
        for i, v in enumerate(x)
    ]
    assert near(kind, out, want)
    assert near(kind, mean, means)
    assert near(kind, variance, variances)
    body = "\n".join(
        [f"x = {kind}[{rows},{features}] parameter(0)"]
        + [f"p{i} = {kind}[{features}] parameter({i})" for i in range(1, 5)]
        + [
            f"ROOT r = {kind}[{rows},{features}] batch-norm-inference(x, p1, p2, p3, p4), epsilon=0.5, feature_index=1"
        ]
    )
    (got,) = run(body, *given, array(kind, mean), array(kind, variance))
    assert near(kind, scalars(got), want)


@pytest.mark.parametrize("kind", INEXACT)
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky(kind, n, lower):
    """L of an exact L L^H comes back."""
    low = {
        (i, j): 2 + i if i == j else (1 - 1j if kind in COMPLEX else -1)
        for i in range(n)
        for j in range(i + 1)
    }
    at = list(itertools.product(range(n), repeat=2))
    a = [
        sum(low.get((i, k), 0) * complex(low.get((j, k), 0)).conjugate() for k in range(n))
        for i, j in at
    ]
    a = a if kind in COMPLEX else [complex(v).real for v in a]
    body = f"x = {kind}[{n},{n}] parameter(0)\nROOT r = {kind}[{n},{n}] cholesky(x), lower={lower}"
    (got,) = run(body, array(kind, a, (n, n)))
    found = dict(zip(at, scalars(got), strict=True))
    half = [(i, j) for i, j in at if j <= i]  # the other triangle is unspecified
    if lower == "true":
        assert near(kind, [found[p] for p in half], [low[p] for p in half])
    else:
        flipped = [complex(found[j, i]).conjugate() for i, j in half]
        assert near(kind, flipped, [low[p] for p in half])


@pytest.mark.parametrize("kind", INEXACT)
@pytest.mark.parametrize(("left", "lower", "unit", "transpose"), list(itertools.product(["true", "false"], ["true", "false"], ["true", "false"], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])))  # fmt: skip
def test_triangular_solve(kind, left, lower, unit, transpose):
    """op(a) x = b or x op(a) = b gives x back; the other triangle (and a unit diagonal) is not read."""
    n = 2
    entry = (2 + 1j) if kind in COMPLEX else 2
    a = {(0, 0): 4, (0, 1): entry, (1, 0): entry, (1, 1): -2}
    used = {
        (i, j): (1 if unit == "true" and i == j else a[i, j])
        if i == j or (i > j) == (lower == "true")
        else 0
        for i, j in a
    }
    op = {
        "NO_TRANSPOSE": lambda i, j: used[i, j],
        "TRANSPOSE": lambda i, j: used[j, i],
        "ADJOINT": lambda i, j: complex(used[j, i]).conjugate(),
    }[transpose]
    x = {(i, j): 1 + i - 2 * j for i in range(n) for j in range(n)}
    b = [
        sum(op(i, k) * x[k, j] if left == "true" else x[i, k] * op(k, j) for k in range(n))
        for i, j in x
    ]
    b = b if kind in COMPLEX else [complex(v).real for v in b]
    body = (
        f"a = {kind}[2,2] parameter(0)\nb = {kind}[2,2] parameter(1)\nROOT r = {kind}[2,2] triangular-solve(a, b), "
        f"left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}"
    )
    (got,) = run(body, array(kind, a.values(), (2, 2)), array(kind, b, (2, 2)))
    assert near(kind, scalars(got), list(x.values()))


def transformed(xs, sign):
    n = len(xs)
    return [
        sum(x * cmath.exp(sign * 2j * cmath.pi * i * k / n) for i, x in enumerate(xs))
        for k in range(n)
    ]


@pytest.mark.parametrize("kind", COMPLEX)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_fft(kind, n):
    real = COMPLEX[kind]
    xs = [complex(i % 3, (i * 2) % 5) for i in range(n)]
    whole = f"{kind}[{n}]"

    def call(result, operand, which, values):
        body = f"x = {operand} parameter(0)\nROOT r = {result} fft(x), fft_type={which}, fft_length={{{n}}}"
        return scalars(run(body, array(operand.split("[")[0], values))[0])

    assert near(kind, call(whole, whole, "FFT", xs), transformed(xs, -1))
    assert near(kind, call(whole, whole, "IFFT", xs), [v / n for v in transformed(xs, 1)])
    reals = [float(i % 4) for i in range(n)]
    half = n // 2 + 1
    spectrum = transformed(reals, -1)[:half]
    assert near(kind, call(f"{kind}[{half}]", f"{real}[{n}]", "RFFT", reals), spectrum)
    exact = scalars(array(kind, spectrum))
    assert near(real, call(f"{real}[{n}]", f"{kind}[{half}]", "IRFFT", exact), reals)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_rng_stays_in_its_bounds(kind):
    body = f"a = {kind}[] parameter(0)\nb = {kind}[] parameter(1)\nROOT r = {kind}[200] rng(a, b), distribution=rng_uniform"
    got = scalars(run(body, array(kind, [-2.0], ()), array(kind, [3.0], ()))[0])
    assert all(-2 <= x <= 3 for x in got)
    assert len(set(got)) > 50


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64", "s8", "s32", "s64"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
def test_random_bits_continue_where_the_state_says(kind, algorithm):
    """Two draws from one state are equal; a draw from the state that came out is another."""
    words = 2 if algorithm == "rng_three_fry" else 3
    body = f"s = u64[{words}] parameter(0)\nROOT r = (u64[{words}], {kind}[16]) rng-bit-generator(s), algorithm={algorithm}"
    state = array("u64", [7, 1, 2][:words])
    after, bits = run(body, state)
    assert scalars(run(body, state)[1]) == scalars(bits)
    assert scalars(run(body, after)[1]) != scalars(bits)
    assert len(set(scalars(bits))) > 8
