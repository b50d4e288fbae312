"""cuSOLVER calls against NumPy: what the factors multiply to."""

from __future__ import annotations

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.errors import UnsupportedError
from spmd.text.parser import parse_module

RNG = np.random.default_rng(8)
A = RNG.standard_normal((2, 5, 3)).astype(np.float32)
SQUARE = RNG.standard_normal((2, 4, 4)).astype(np.float32)
POSITIVE = (SQUARE @ np.swapaxes(SQUARE, 1, 2) + 4 * np.eye(4)).astype(np.float32)


def call(target: str, operand: np.ndarray, results: list[str], config: str, keep: list[int]) -> str:
    """Return a program of one call whose results ``keep`` are returned."""
    dims = ",".join(map(str, operand.shape))
    kind = {"f": "f32", "c": "c64"}[operand.dtype.kind]
    parts = "\n".join(f"  r{i} = {results[i]} get-tuple-element(z), index={i}" for i in keep)
    shapes = ", ".join(results[i] for i in keep)
    names = ", ".join(f"r{i}" for i in keep)
    return f"""
ENTRY main {{
  a = {kind}[{dims}] parameter(0)
  z = ({", ".join(results)}) custom-call(a), custom_call_target="{target}", backend_config={{{config}}}
{parts}
  ROOT t = ({shapes}) tuple({names})
}}"""


@pytest.mark.parametrize("lower", [True, False])
def test_potrf(run, lower: bool) -> None:
    flag = f"lower = {str(lower).lower()}"
    text = call("cusolver_potrf_ffi", POSITIVE, ["f32[2,4,4]", "s32[2]"], flag, [0, 1])
    factor, info = run(text, POSITIVE)
    triangle = np.tril(factor) if lower else np.swapaxes(np.triu(factor), 1, 2)
    np.testing.assert_allclose(
        triangle @ np.swapaxes(triangle, 1, 2), POSITIVE, rtol=1e-4, atol=1e-4
    )
    assert info.tolist() == [0, 0]


def test_cholesky_of_xla_has_a_workspace_between(run) -> None:
    results = ["f32[2,4,4]", "s8[64]", "s32[2]"]
    text = call("__cusolver$cholesky", POSITIVE, results, '"lower":true', [0, 2])
    factor, info = run(text, POSITIVE)
    triangle = np.tril(factor)
    np.testing.assert_allclose(
        triangle @ np.swapaxes(triangle, 1, 2), POSITIVE, rtol=1e-4, atol=1e-4
    )
    assert info.tolist() == [0, 0]


def test_getrf(run) -> None:
    results = ["f32[2,4,4]", "s32[2,4]", "s32[2]"]
    lu, pivots, info = run(call("cusolver_getrf_ffi", SQUARE, results, "", [0, 1, 2]), SQUARE)
    assert info.tolist() == [0, 0]
    for a, both, exchanged in zip(SQUARE, lu, pivots, strict=True):
        rows = a.copy()
        for i, p in enumerate(exchanged - 1):
            rows[[i, p]] = rows[[p, i]]
        product = (np.tril(both, -1) + np.eye(4)) @ np.triu(both)
        np.testing.assert_allclose(product, rows, rtol=1e-4, atol=1e-5)


def test_pivots_to_permutation(run) -> None:
    pivots = np.array([[2, 2, 4], [0, 1, 2]], np.int32)
    text = """
ENTRY main {
  p = s32[2,3] parameter(0)
  ROOT z = s32[2,5] custom-call(p), custom_call_target="cu_lu_pivots_to_permutation"
}"""
    assert run(text, pivots)[0].tolist() == [[2, 0, 4, 3, 1], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cusolver_geqrf_ffi", "cusolver_orgqr_ffi"),
        ("Qr", "ProductOfElementaryHouseholderReflectors"),
    ],
)
def test_geqrf_and_orgqr(run, first: str, second: str) -> None:
    text = f"""
ENTRY main {{
  a = f32[2,5,3] parameter(0)
  z = (f32[2,5,3], f32[2,3]) custom-call(a), custom_call_target="{first}"
  h = f32[2,5,3] get-tuple-element(z), index=0
  tau = f32[2,3] get-tuple-element(z), index=1
  q = f32[2,5,3] custom-call(h, tau), custom_call_target="{second}"
  ROOT t = (f32[2,5,3], f32[2,5,3]) tuple(h, q)
}}"""
    h, q = run(text, A)
    np.testing.assert_allclose(q @ np.triu(h[:, :3]), A, rtol=1e-4, atol=1e-5)


def test_syevd(run) -> None:
    results = ["f32[2,4,4]", "f32[2,4]", "s32[2]"]
    config = "algorithm = 0 : ui8, lower = true"
    text = call("cusolver_syevd_ffi", POSITIVE, results, config, [1])
    np.testing.assert_allclose(run(text, POSITIVE)[0], np.linalg.eigvalsh(POSITIVE), rtol=1e-4)


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_of_xla(run, lower: bool) -> None:
    """The other triangle is not looked at."""
    half = np.tril(POSITIVE) if lower else np.triu(POSITIVE)
    results = ["f32[2,4,4]", "f32[2,4]"]
    text = call("Eigh", half, results, "", [0, 1]).replace(
        "backend_config={}", f'backend_config="{int(lower)},1,6,0.000001"'
    )
    vectors, values = run(text, half)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(POSITIVE), rtol=1e-4)
    again = vectors * values[:, None] @ np.swapaxes(vectors, 1, 2)
    np.testing.assert_allclose(again, POSITIVE, rtol=1e-3, atol=1e-3)


def test_eigh_without_its_numbers_is_refused(run) -> None:
    with pytest.raises(UnsupportedError, match="lower,sorted,iterations,tolerance"):
        run(call("Eigh", POSITIVE, ["f32[2,4,4]", "f32[2,4]"], "", [0]), POSITIVE)


@pytest.mark.parametrize("operand", [A, A + 1j * A[:, ::-1]], ids=["real", "complex"])
@pytest.mark.parametrize("form", ["plain", "transposed", "jacobi"])
def test_singular_values(run, operand: np.ndarray, form: str) -> None:
    operand = operand.astype(np.complex64) if operand.dtype.kind == "c" else operand
    wide = np.ascontiguousarray(np.swapaxes(operand, 1, 2))
    a = wide if form == "transposed" else operand
    kind = "c64" if a.dtype.kind == "c" else "f32"
    rows, columns = a.shape[1:]
    u, vh = f"{kind}[2,{rows},3]", f"{kind}[2,3,{columns}]"
    vectors = {"plain": [u, vh], "transposed": [vh, u], "jacobi": [u, f"{kind}[2,{columns},3]"]}
    results = [f"{kind}[2,{rows},{columns}]", "f32[2,3]", *vectors[form], "s32[2]"]
    config = f"compute_uv = true, full_matrices = false, transposed = {str(form == 'transposed').lower()}"
    target = "cusolver_gesvdj_ffi" if form == "jacobi" else "cusolver_gesvd_ffi"
    program = call(target, a, results, config, [1])
    np.testing.assert_allclose(
        run(program, a)[0], np.linalg.svd(a, compute_uv=False), rtol=1e-4, atol=1e-5
    )
    values, first, second = _compiled(call(target, a, results, config, [1, 2, 3]), a)
    left, right = (second, first) if form == "transposed" else (first, second)
    if form == "jacobi":
        right = np.conj(np.swapaxes(right, 1, 2))
    np.testing.assert_allclose((left * values[:, None, :]) @ right, a, rtol=1e-3, atol=1e-4)


def _compiled(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the outputs of the compiled program; vectors are unique but for their signs."""
    module = parse_module(f"HloModule solver\n{text}")
    return compile_module(module, 1, CompileOptions(partitioned=True)).run(*arrays)


def test_a_flag_that_is_missing_is_named(run) -> None:
    text = call("cusolver_potrf_ffi", POSITIVE, ["f32[2,4,4]", "s32[2]"], "", [0])
    with pytest.raises(UnsupportedError, match="does not say lower"):
        run(text, POSITIVE)
