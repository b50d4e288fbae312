"""Tests of LAPACK routines that NumPy has no function for, against the equations that define their results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import spmd
from spmd.errors import UnsupportedError
from spmd.evaluator import lapack_library
from spmd.hlo import HloModule
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

TYPES = [np.float32, np.float64, np.complex64, np.complex128]
LETTERS = dict(zip(TYPES, "sdcz", strict=True))
BATCH, N = 3, 5


def hlo(array: NDArray) -> str:
    kind = PrimitiveType.from_numpy(array.dtype)
    return f"{kind.value}[{','.join(map(str, array.shape))}]"


def call(
    routine: str, operands: Sequence[NDArray], results: str, flags: str = ""
) -> tuple[HloModule, list[NDArray]]:
    """Return a module that calls the routine, and its outputs by the evaluator; compiled it gives the same."""
    text = "".join(f"  x{n} = {hlo(x)} parameter({n})\n" for n, x in enumerate(operands))
    names = ", ".join(f"x{n}" for n in range(len(operands)))
    target = f"lapack_{LETTERS[operands[0].dtype.type]}{routine}_ffi"
    codes = ", ".join(f"{k} = {ord(v)} : ui8" for k, v in (f.split("=") for f in flags.split()))
    module = spmd.parse(
        f"HloModule m\n\nENTRY e {{\n{text}  ROOT r = ({results}) custom-call({names}),"
        f' custom_call_target="{target}", backend_config="{{{codes}}}"\n}}\n'
    )
    outputs = [np.asarray(x) for x in spmd.evaluate(module, *operands)]
    for got, want in zip(spmd.compile(module, 1).run(*operands), outputs, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)
    return module, outputs


def matrices(dtype: type[np.generic], *dims: int) -> NDArray:
    rng = np.random.default_rng(11)
    a = rng.standard_normal(dims)
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal(dims)
    return a.astype(dtype)


def names(dtype: type[np.generic]) -> tuple[str, str, str]:
    """Return HLO's names of the type, of its complex type and of its real one."""
    wide = np.dtype(dtype).itemsize // (2 if np.issubdtype(dtype, np.complexfloating) else 1)
    kind = PrimitiveType.from_numpy(np.dtype(dtype)).value
    return kind, f"c{16 * wide}", f"f{8 * wide}"


def close(got: NDArray, want: NDArray) -> None:
    exact = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, want, rtol=300 * exact, atol=300 * exact)


def adjoint(a: NDArray) -> NDArray:
    return np.conj(np.swapaxes(a, -1, -2))


def eye(n: int) -> NDArray:
    return np.broadcast_to(np.eye(n), (BATCH, n, n))


@pytest.mark.parametrize("dtype", TYPES)
def test_eigenvectors_of_any_matrix(dtype: type[np.generic]) -> None:
    a, (kind, wide, _) = matrices(dtype, BATCH, N, N), names(dtype)
    is_complex = np.issubdtype(dtype, np.complexfloating)
    values = f"{kind}[{BATCH},{N}], " * (1 if is_complex else 2)
    vectors = f"{wide}[{BATCH},{N},{N}], " * 2
    results = f"{values}{vectors}s32[{BATCH}]"
    _, found = call("geev", [a], results, "compute_left=V compute_right=V")
    *parts, left, right, info = found
    spectrum = parts[0] if is_complex else parts[0] + 1j * parts[1]
    close(a @ right, right * spectrum[:, None, :])
    close(adjoint(left) @ a, spectrum[:, :, None] * adjoint(left))
    assert not info.any()


@pytest.mark.parametrize("dtype", TYPES)
def test_schur_form(dtype: type[np.generic]) -> None:
    a, (kind, _, _) = matrices(dtype, BATCH, N, N), names(dtype)
    is_complex = np.issubdtype(dtype, np.complexfloating)
    values = f"{kind}[{BATCH},{N}], " * (1 if is_complex else 2)
    square = f"{kind}[{BATCH},{N},{N}], " * 2
    results = f"{square}{values}s32[{BATCH}], s32[{BATCH}]"
    _, found = call("gees", [a], results, "mode=V sort=N")
    t, vectors, *_, info = found
    close(vectors @ t @ adjoint(vectors), a)
    close(adjoint(vectors) @ vectors, eye(N))
    below = np.tril(t, -1 if is_complex else -2)
    assert not below.any()
    assert not info.any()


@pytest.mark.parametrize("dtype", TYPES)
def test_hessenberg_form(dtype: type[np.generic]) -> None:
    a, (kind, _, _) = matrices(dtype, BATCH, N, N), names(dtype)
    results = f"{kind}[{BATCH},{N},{N}], {kind}[{BATCH},{N - 1}], s32[{BATCH}]"
    _, (packed, tau, info) = call("gehrd", [a], results)
    q = reflected(packed[:, 1:, :-1], tau)
    full = np.broadcast_to(np.eye(N, dtype=dtype), a.shape).copy()
    full[:, 1:, 1:] = q
    close(full @ np.triu(packed, -1) @ adjoint(full), a)
    assert not info.any()


def reflected(vectors: NDArray, tau: NDArray) -> NDArray:
    """Return the product of the reflectors whose vectors stand below the diagonal."""
    n = vectors.shape[-1]
    q = np.broadcast_to(np.eye(n, dtype=vectors.dtype), vectors.shape).copy()
    for k in reversed(range(n)):
        v = np.tril(vectors, -1)[:, :, k]
        v[:, k] = 1
        q = q - tau[:, k, None, None] * v[:, :, None] * (np.conj(v)[:, None, :] @ q)
    return q


@pytest.mark.parametrize("dtype", TYPES)
def test_tridiagonal_form(dtype: type[np.generic]) -> None:
    a = matrices(dtype, BATCH, N, N)
    a, (kind, _, real) = (a + adjoint(a)).astype(dtype), names(dtype)
    ends = f"{real}[{BATCH},{N}], {real}[{BATCH},{N - 1}], {kind}[{BATCH},{N - 1}]"
    routine = "hetrd" if np.issubdtype(dtype, np.complexfloating) else "sytrd"
    results = f"{kind}[{BATCH},{N},{N}], {ends}, s32[{BATCH}]"
    _, (_, diagonal, other, _, info) = call(routine, [a], results, "uplo=L")
    three = np.stack(
        [np.diag(d) + np.diag(e, 1) + np.diag(e, -1) for d, e in zip(diagonal, other, strict=True)]
    )
    close(np.linalg.eigvalsh(three), np.linalg.eigvalsh(a))
    assert not info.any()


@pytest.mark.parametrize("dtype", TYPES)
def test_tridiagonal_systems(dtype: type[np.generic]) -> None:
    (kind, _, _), x = names(dtype), matrices(dtype, BATCH, N, 2)
    below, diagonal, above = (matrices(dtype, BATCH, N) + shift for shift in (0, 4, 0))
    full = np.zeros((BATCH, N, N), dtype)
    for k in range(N):
        full[:, k, k] = diagonal[:, k]
        if k:
            full[:, k, k - 1], full[:, k - 1, k] = below[:, k], above[:, k - 1]
    operands = [x.astype(dtype) for x in (below, diagonal, above, full @ x)]
    line = f"{kind}[{BATCH},{N}], " * 3
    _, found = call("gtsv", operands, f"{line}{kind}[{BATCH},{N},2], s32[{BATCH}]")
    close(found[3], x)


@pytest.mark.parametrize("dtype", TYPES)
def test_qr_with_pivots(dtype: type[np.generic]) -> None:
    a, (kind, _, _) = matrices(dtype, BATCH, N, 4), names(dtype)
    results = f"{kind}[{BATCH},{N},4], s32[{BATCH},4], {kind}[{BATCH},4]"
    _, (packed, order, _) = call("geqp3", [a, np.zeros((BATCH, 4), np.int32)], results)
    permuted = np.take_along_axis(a, order[:, None, :] - 1, axis=2)
    r = np.triu(packed[:, :4])
    close(adjoint(r) @ r, adjoint(permuted) @ permuted)
    assert np.all(np.diff(np.abs(np.diagonal(r, axis1=1, axis2=2))) <= 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", "ASN")
def test_singular_values_by_qr_iteration(dtype: type[np.generic], mode: str) -> None:
    a, (kind, _, real) = matrices(dtype, BATCH, N, 3), names(dtype)
    wide = 3 if mode == "S" else N
    vectors = f"{kind}[{BATCH},{N},{wide}], {kind}[{BATCH},3,3]"
    results = f"{kind}[{BATCH},{N},3], {real}[{BATCH},3], {vectors}, s32[{BATCH}]"
    _, (_, values, u, vh, info) = call("gesvd", [a], results, f"mode={mode}")
    close(values, np.linalg.svd(a, compute_uv=False))
    if mode != "N":
        close((u[:, :, :3] * values[:, None]) @ vh, a)
    assert not info.any()


def test_a_numpy_of_another_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack_library, "numpy_library", lambda: None)
    with pytest.raises(UnsupportedError, match="no LAPACK routine sgehrd"):
        call("gehrd", [matrices(np.float32, 2, 2)], "f32[2,2], f32[1], s32[]")
