"""Factorizations, solves, transforms and the LAPACK calls against their defining equations."""

from __future__ import annotations

import numpy as np
import pytest

FLAG = {c: ord(c) for c in "LUNTCRAS"}


def positive_definite(rng, batch, n, dtype=np.float32):
    a = rng.standard_normal((batch, n, n))
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal((batch, n, n))
    return (a @ np.conj(np.swapaxes(a, 1, 2)) + n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_reads_one_triangle(run, rng, lower):
    a = positive_definite(rng, 3, 5)
    read = np.tril(a) if lower else np.triu(a)
    body = (
        f"x = f32[3,5,5] parameter(0) ROOT r = f32[3,5,5] cholesky(x), lower={str(lower).lower()}"
    )
    factor = run(body, read)[0]
    product = factor @ np.swapaxes(factor, 1, 2) if lower else np.swapaxes(factor, 1, 2) @ factor
    np.testing.assert_allclose(product, a, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))


def test_cholesky_of_an_indefinite_matrix_is_nan(run, rng):
    a = positive_definite(rng, 2, 3)
    a[1] = -a[1]
    factor = run("x = f32[2,3,3] parameter(0) ROOT r = f32[2,3,3] cholesky(x), lower=true", a)[0]
    assert np.isfinite(factor[0]).all()
    assert np.isnan(factor[1][np.tril_indices(3)]).all()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("n", [3, 70])
def test_triangular_solve(run, rng, left, lower, unit, transpose, n):
    a = (rng.standard_normal((2, n, n)) + 1j * rng.standard_normal((2, n, n))).astype(
        np.complex64
    ) / n + np.eye(n, dtype=np.complex64)
    b = rng.standard_normal((2, n, 4) if left else (2, 4, n)).astype(np.complex64)
    shape = ",".join(map(str, b.shape))
    body = f"""a = c64[2,{n},{n}] parameter(0) b = c64[{shape}] parameter(1)
      ROOT r = c64[{shape}] triangular-solve(a, b), left_side={str(left).lower()}, lower={str(lower).lower()},
        unit_diagonal={str(unit).lower()}, transpose_a={transpose}"""
    x = run(body, a, b)[0]
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        t[:, np.arange(n), np.arange(n)] = 1
    op = {
        "NO_TRANSPOSE": t,
        "TRANSPOSE": np.swapaxes(t, 1, 2),
        "ADJOINT": np.conj(np.swapaxes(t, 1, 2)),
    }[transpose]
    np.testing.assert_allclose(op @ x if left else x @ op, b, atol=1e-4)


def test_fft_kinds(run, rng):
    z = (rng.standard_normal((3, 4, 6)) + 1j * rng.standard_normal((3, 4, 6))).astype(np.complex64)
    n, m = np.arange(4), np.arange(6)
    fours, sixes = (
        np.exp(-2j * np.pi * np.outer(n, n) / 4),
        np.exp(-2j * np.pi * np.outer(m, m) / 6),
    )
    body = "x = c64[3,4,6] parameter(0) ROOT r = c64[3,4,6] fft(x), fft_type=KIND, fft_length={4,6}"
    want = fours @ z @ sixes
    np.testing.assert_allclose(run(body.replace("KIND", "FFT"), z)[0], want, atol=1e-4)
    back = run(body.replace("KIND", "IFFT"), want.astype(np.complex64))[0]
    np.testing.assert_allclose(back, z, atol=1e-5)


@pytest.mark.parametrize("length", [6, 7])
def test_real_fft_keeps_half_the_spectrum(run, rng, length):
    x = rng.standard_normal((2, length)).astype(np.float32)
    m, half = np.arange(length), length // 2 + 1
    spectrum = x @ np.exp(-2j * np.pi * np.outer(m, m) / length)
    body = f"x = f32[2,{length}] parameter(0) ROOT r = c64[2,{half}] fft(x), fft_type=RFFT, fft_length={{{length}}}"
    got = run(body, x)[0]
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, spectrum[:, :half], atol=1e-4)
    body = f"x = c64[2,{half}] parameter(0) ROOT r = f32[2,{length}] fft(x), fft_type=IRFFT, fft_length={{{length}}}"
    np.testing.assert_allclose(run(body, got)[0], x, atol=1e-5)


def lapack(run, kind, target, operands, results, flags):
    shapes = [f"{kind}[{','.join(map(str, x.shape))}]" for x in operands]
    config = ", ".join(f"{name} = {FLAG[value]} : ui8" for name, value in flags.items())
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    parameters = " ".join(f"p{i} = {s} parameter({i})" for i, s in enumerate(shapes))
    body = f"""{parameters} ROOT r = {result} custom-call({names}), custom_call_target="{target}",
      api_version=API_VERSION_TYPED_FFI, backend_config={{{config}}}"""
    return run(body, *operands)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_potrf_leaves_the_other_triangle(run, rng, uplo):
    a = positive_definite(rng, 2, 4)
    factor, info = lapack(
        run, "f32", "lapack_spotrf_ffi", [a], ["f32[2,4,4]", "s32[2]"], {"uplo": uplo}
    )
    one, other = (np.tril, np.triu) if uplo == "L" else (np.triu, np.tril)
    product = (
        one(factor) @ np.swapaxes(one(factor), 1, 2)
        if uplo == "L"
        else np.swapaxes(one(factor), 1, 2) @ one(factor)
    )
    np.testing.assert_allclose(product, a, rtol=1e-5)
    k = -1 if uplo == "U" else 1
    np.testing.assert_array_equal(other(factor, k), other(a, k))
    assert info.tolist() == [0, 0]


def test_trsm_solves(run, rng):
    a, b = positive_definite(rng, 2, 4, np.float64), rng.standard_normal((2, 4, 3))
    flags = {"diag": "N", "side": "L", "trans_x": "T", "uplo": "L"}
    (x,) = lapack(run, "f64", "lapack_dtrsm_ffi", [a, b], ["f64[2,4,3]"], flags)
    np.testing.assert_allclose(np.swapaxes(np.tril(a), 1, 2) @ x, b, rtol=1e-10)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_getrf_factors_with_row_exchanges(run, rng, shape):
    m, n = shape
    a = rng.standard_normal((2, m, n)).astype(np.float32)
    k = min(m, n)
    lu, pivots, info = lapack(
        run, "f32", "lapack_sgetrf_ffi", [a], [f"f32[2,{m},{n}]", f"s32[2,{k}]", "s32[2]"], {}
    )
    for matrix, f, exchanges in zip(a, lu, pivots, strict=True):
        permuted = matrix.copy()
        for row, other in enumerate(exchanges - 1):
            permuted[[row, other]] = permuted[[other, row]]
        lower = np.tril(f, -1)[:, :k] + np.eye(m, k)
        np.testing.assert_allclose(lower @ np.triu(f)[:k], permuted, atol=1e-5)
        assert np.abs(lower).max() <= 1
    assert info.tolist() == [0, 0]


def test_geqrf_and_orgqr_make_q_and_r(run, rng):
    a = rng.standard_normal((2, 5, 3)).astype(np.float32)
    packed, tau = lapack(run, "f32", "lapack_sgeqrf_ffi", [a], ["f32[2,5,3]", "f32[2,3]"], {})
    body = """p0 = f32[2,5,3] parameter(0) p1 = f32[2,3] parameter(1)
      ROOT r = f32[2,5,3] custom-call(p0, p1), custom_call_target="lapack_sorgqr_ffi" """
    q = run(body, packed, tau)[0]
    np.testing.assert_allclose(q @ np.triu(packed[:, :3]), a, atol=1e-5)
    np.testing.assert_allclose(
        np.swapaxes(q, 1, 2) @ q, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-5
    )


def test_eigenvectors_and_singular_values(run, rng):
    a = positive_definite(rng, 2, 4)
    vectors, values, info = lapack(
        run,
        "f32",
        "lapack_ssyevd_ffi",
        [a],
        ["f32[2,4,4]", "f32[2,4]", "s32[2]"],
        {"uplo": "L", "mode": "A"},
    )
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None], rtol=1e-3, atol=1e-3)
    assert np.all(np.diff(values) >= 0)
    assert info.tolist() == [0, 0]
    b = rng.standard_normal((2, 5, 3)).astype(np.float32)
    results = ["f32[2,5,3]", "f32[2,3]", "f32[2,5,3]", "f32[2,3,3]", "s32[2]"]
    _, s, u, vh, _ = lapack(run, "f32", "lapack_sgesdd_ffi", [b], results, {"mode": "S"})
    np.testing.assert_allclose((u * s[:, None]) @ vh, b, atol=1e-5)
    results = ["f32[2,5,3]", "f32[2,3]", "f32[2,5,5]", "f32[2,3,3]", "s32[2]"]
    _, values, *_ = lapack(run, "f32", "lapack_sgesdd_ffi", [b], results, {"mode": "N"})
    np.testing.assert_allclose(values, s, rtol=1e-5)


def test_batch_norm(run, rng):
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    scale, offset = (
        rng.standard_normal(3).astype(np.float32),
        rng.standard_normal(3).astype(np.float32),
    )
    body = """x = f32[4,3,5] parameter(0) s = f32[3] parameter(1) o = f32[3] parameter(2)
      ROOT r = (f32[4,3,5], f32[3], f32[3]) batch-norm-training(x, s, o), epsilon=0.01, feature_index=1"""
    y, mean, variance = run(body, x, scale, offset)
    np.testing.assert_allclose(mean, x.mean((0, 2)), atol=1e-6)
    np.testing.assert_allclose(variance, x.var((0, 2)), rtol=1e-5)
    normal = (x - mean[:, None]) / np.sqrt(variance[:, None] + np.float32(0.01))
    np.testing.assert_allclose(y, normal * scale[:, None] + offset[:, None], atol=1e-5)
    body = """x = f32[4,3,5] parameter(0) s = f32[3] parameter(1) o = f32[3] parameter(2) m = f32[3] parameter(3) v = f32[3] parameter(4)
      ROOT r = f32[4,3,5] batch-norm-inference(x, s, o, m, v), epsilon=0.01, feature_index=1"""
    np.testing.assert_allclose(run(body, x, scale, offset, mean, variance)[0], y, atol=1e-5)


def test_batch_norm_grad_against_differences(run, rng):
    x = rng.standard_normal((4, 2)).astype(np.float64)
    scale, weights = rng.standard_normal(2), rng.standard_normal((4, 2))

    def loss(x, scale, offset):
        normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 0.01)
        return float(np.sum((normal * scale + offset) * weights))

    body = """x = f64[4,2] parameter(0) s = f64[2] parameter(1) m = f64[2] parameter(2) v = f64[2] parameter(3) g = f64[4,2] parameter(4)
      ROOT r = (f64[4,2], f64[2], f64[2]) batch-norm-grad(x, s, m, v, g), epsilon=0.01, feature_index=1"""
    got = run(body, x, scale, x.mean(0), x.var(0), weights)
    zero, h = np.zeros(2), 1e-6
    for g, k in zip(got, range(3), strict=True):
        arguments = [x, scale, zero]
        for place in np.ndindex(arguments[k].shape):
            up, down = ([a.copy() for a in arguments] for _ in range(2))
            up[k][place] += h
            down[k][place] -= h
            assert abs((loss(*up) - loss(*down)) / (2 * h) - g[place]) < 1e-6
