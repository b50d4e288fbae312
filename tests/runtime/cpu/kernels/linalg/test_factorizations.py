"""LU, QR, eigenvalues and singular values by LAPACK from native code: beside the evaluator, or by their definition."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.program.records.linalg import FactorizationKernel
from spmd.literal import NDArray
from tests.runtime.cpu.kernels.linalg.test_linear_algebra import TYPES, matrices
from tests.runtime.programs import compiled
from tests.runtime.programs.agreement import assert_agrees, kernels_of

LETTERS = [*zip(TYPES, "sdcz", strict=True)]
PART = {"f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64"}


def call(result: str, operands: list[str], target: str, config: str = "") -> str:
    parameters = [f"p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    lines = "\n      ".join(parameters)
    return f"""HloModule calls
    ENTRY main {{
      {lines}
      ROOT r = {result} custom-call({names}), custom_call_target="lapack_{target}_ffi", backend_config={{{config}}}
    }}
    """


def check(result: str, operands: dict[str, NDArray], target: str) -> None:
    """Check a factorization beside the evaluator. ``result`` is its shape; ``operands`` are given by their shapes."""
    text = call(result, [*operands], target)
    single = "f32" in text or "c64" in text
    executable = assert_agrees(text, inputs=[*operands.values()], rtol=2e-4 if single else 1e-9)
    assert [type(kernel) for kernel in kernels_of(executable)] == [FactorizationKernel]


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
def test_getrf(kind: str, letter: str) -> None:
    for m, n in ((5, 5), (4, 7), (7, 4), (1, 1)):
        x = matrices(kind, 3, m, n)
        if m == 5:
            x[1] = 0  # has no pivot
        least = min(m, n)
        result = f"({kind}[3,{m},{n}], s32[3,{least}], s32[3])"
        check(result, {f"{kind}[3,{m},{n}]": x}, f"{letter}getrf")


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
def test_geqrf_and_orgqr(kind: str, letter: str) -> None:
    orgqr = "orgqr" if letter in "sd" else "ungqr"
    for m, n in ((5, 5), (4, 7), (7, 4), (40, 33)):
        shape, least = f"{kind}[2,{m},{n}]", min(m, n)
        x = matrices(kind, 2, m, n)
        check(f"({shape}, {kind}[2,{least}])", {shape: x}, f"{letter}geqrf")
        if m >= n:
            tau = 1 + 0.1 * matrices(kind, 2, least)
            check(shape, {shape: x / m, f"{kind}[2,{least}]": tau.astype(x.dtype)}, letter + orgqr)


def run(result: str, operand: str, x: NDArray, target: str, config: str) -> list[NDArray]:
    text = call(result, [operand], target, config)
    executable = compiled(text)
    assert [type(kernel) for kernel in kernels_of(executable)] == [FactorizationKernel]
    return executable.run(x)


def assert_unitary(x: NDArray, tolerance: float) -> None:
    """Columns, or rows where these are fewer."""
    x = x if x.shape[-2] >= x.shape[-1] else x.swapaxes(-1, -2)
    got = x.conj().swapaxes(-1, -2) @ x
    np.testing.assert_allclose(got, np.broadcast_to(np.eye(x.shape[-1]), got.shape), atol=tolerance)


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
@pytest.mark.parametrize("uplo", "LU")
def test_syevd(kind: str, letter: str, uplo: str) -> None:
    """The triangle that is not read holds something else. Vectors may have any sign."""
    name = "syevd" if letter in "sd" else "heevd"
    tolerance = 20 * TYPES[kind]
    for n in (1, 6, 40):
        x = matrices(kind, 2, n, n)
        whole = x + x.conj().swapaxes(-1, -2)
        given = np.where(
            np.tri(n, dtype=bool) if uplo == "L" else np.tri(n, dtype=bool).T, whole, 9
        )
        shape = f"{kind}[2,{n},{n}]"
        result = f"({shape}, {PART[kind]}[2,{n}], s32[2])"
        config = f"uplo = {ord(uplo)} : ui8"
        vectors, values, info = run(result, shape, given.astype(x.dtype), letter + name, config)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(whole), atol=tolerance)
        np.testing.assert_allclose(whole @ vectors, vectors * values[:, None], atol=tolerance)
        assert_unitary(vectors, tolerance)
        assert not info.any()


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
def test_singular_values_without_vectors(kind: str, letter: str) -> None:
    """U and V^H have the shapes of mode A, as JAX writes them, and nothing in them."""
    for m, n in ((5, 5), (3, 8), (40, 7)):
        shape, values = f"{kind}[2,{m},{n}]", f"{PART[kind]}[2,{min(m, n)}]"
        result = f"({shape}, {values}, {kind}[2,{m},{m}], {kind}[2,{n},{n}], s32[2])"
        x = matrices(kind, 2, m, n)
        target, config = f"{letter}gesdd", f"mode = {ord('N')} : ui8"
        _, found, u, vh, info = run(result, shape, x, target, config)
        wanted = np.linalg.svd(x, compute_uv=False)
        np.testing.assert_allclose(found, wanted, atol=20 * TYPES[kind])
        assert not u.any()
        assert not vh.any()
        assert not info.any()


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
@pytest.mark.parametrize("mode", "AS")
def test_gesdd(kind: str, letter: str, mode: str) -> None:
    tolerance = 20 * TYPES[kind]
    for m, n in ((5, 5), (3, 8), (8, 3), (40, 7)):
        least = min(m, n)
        rows, columns = (m, n) if mode == "A" else (least, least)
        shapes = (f"{kind}[2,{m},{n}]", f"{PART[kind]}[2,{least}]", f"{kind}[2,{m},{rows}]")
        result = f"({', '.join(shapes)}, {kind}[2,{columns},{n}], s32[2])"
        x = matrices(kind, 2, m, n)
        config = f"mode = {ord(mode)} : ui8"
        _, values, u, vh, info = run(result, shapes[0], x, f"{letter}gesdd", config)
        np.testing.assert_allclose(values, np.linalg.svd(x, compute_uv=False), atol=tolerance)
        product = u[..., :least] * values[:, None] @ vh[:, :least]
        np.testing.assert_allclose(product, x, atol=tolerance)
        assert_unitary(u, tolerance)
        assert_unitary(vh, tolerance)
        assert not info.any()
