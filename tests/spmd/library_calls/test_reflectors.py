"""Products with the orthogonal factor of a QR factorization, against its reflectors one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.errors import UnsupportedError
from spmd.text.parser import parse_module

RNG = np.random.default_rng(9)
KINDS = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


def numbers(letter: str, *shape: int) -> Any:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if letter in "cz" else x).astype(DTYPES[letter])


def factored(letter: str, m: int, n: int) -> tuple[Any, Any]:
    """Return R with the reflectors below it, and tau, of two matrices."""
    found = [np.linalg.qr(numbers(letter, m, n), mode="raw") for _ in range(2)]
    packed = np.stack([h.T for h, _ in found]).astype(DTYPES[letter])
    return packed, np.stack([tau for _, tau in found]).astype(DTYPES[letter])


def q_of(packed: Any, tau: Any) -> Any:
    """Return Q, from its reflectors one by one in 128 bits."""
    m, k = packed.shape[-2], tau.shape[-1]
    every = []
    for h, t in zip(packed.astype(np.complex128), tau.astype(np.complex128), strict=True):
        q = np.eye(m, dtype=np.complex128)
        for i in range(k):
            v = np.concatenate([np.zeros(i), [1], h[i + 1 :, i]])
            q = q @ (np.eye(m) - t[i] * np.outer(v, v.conj()))
        every.append(q)
    return np.stack(every)


def text(target: str, letter: str, packed: Any, tau: Any, c: Any, flags: str) -> str:
    kind = KINDS[letter]
    a, t, x = (f"{kind}[{','.join(map(str, y.shape))}]" for y in (packed, tau, c))
    return f"""
ENTRY main {{
  a = {a} parameter(0)
  tau = {t} parameter(1)
  c = {x} parameter(2)
  ROOT z = {x} custom-call(a, tau, c), custom_call_target="{target}", backend_config={{{flags}}}
}}"""


@pytest.mark.parametrize("letter", "sdcz")
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("adjoint", [True, False], ids=["adjoint", "plain"])
@pytest.mark.parametrize("shape", [(7, 3), (4, 4), (3, 5)], ids=str)
def test_products_with_q(
    run, letter: str, left: bool, adjoint: bool, shape: tuple[int, int]
) -> None:
    """Square real matrices have a last tau of 0, and wide ones more columns than reflectors."""
    packed, tau = factored(letter, *shape)
    m = shape[0]
    c = numbers(letter, 2, m, 6) if left else numbers(letter, 2, 6, m)
    q = q_of(packed, tau)
    q = np.conj(np.swapaxes(q, 1, 2)) if adjoint else q
    name = "unmqr" if letter in "cz" else "ormqr"
    flags = f"left = {str(left).lower()}, transpose = {str(adjoint).lower()}"
    program = text(f"lapack_{letter}{name}_ffi", letter, packed, tau, c, flags)
    if letter == "s":  # the evaluator beside it
        (found,) = run(program, packed, tau, c)
    else:
        module = parse_module(f"HloModule reflectors\n{program}")
        (found,) = compile_module(module, 1, CompileOptions(partitioned=True)).run(packed, tau, c)
    close = 1e-4 if letter in "sc" else 1e-12
    np.testing.assert_allclose(found, q @ c if left else c @ q, rtol=close, atol=close)


def test_a_gpu_call_without_reflectors(run) -> None:
    packed, tau, c = numbers("s", 2, 4, 3), numbers("s", 2, 0), numbers("s", 2, 4, 5)
    program = text("cusolver_ormqr_ffi", "s", packed, tau, c, "left = true, transpose = false")
    np.testing.assert_array_equal(run(program, packed, tau, c)[0], c)


def test_what_cannot_be_is_refused(run) -> None:
    packed, tau, c = numbers("s", 2, 4, 3), numbers("s", 2, 4), numbers("s", 2, 4, 5)
    program = text("lapack_sormqr_ffi", "s", packed, tau, c, "left = true, transpose = false")
    with pytest.raises(UnsupportedError, match="more reflectors than columns"):
        run(program, packed, tau, c)
    few = tau[:, :3].copy()
    program = text("lapack_sormqr_ffi", "s", packed, few, c, "")
    with pytest.raises(UnsupportedError, match="does not say left"):
        run(program, packed, few, c)
