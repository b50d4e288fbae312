"""Decompositions by LAPACK's custom calls, for doubles and for GPUs, held to their definitions."""

from __future__ import annotations

import numpy as np

from tests.runtime.gpu.linear_algebra import LETTERS, TYPES, OnGpu, matrices, run_on

_PARTS = {"f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64"}
#: (matrices, rows, columns): alone and in batches, tall, wide and square, on both sides of what is batched.
SIZES = [
    (1, 1, 1),
    (3, 5, 5),
    (2, 4, 7),
    (2, 7, 4),
    (1, 33, 40),
    (2, 40, 33),
    (70, 6, 3),
    (1, 130, 20),
]


def call(name: str, result: str, target: str, operands: str, config: str = "") -> str:
    target = f'custom_call_target="lapack_{target}_ffi", backend_config={{{config}}}'
    return f"{name} = {result} custom-call({operands}), {target}"


def adjoint(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(
        got, np.broadcast_to(want, got.shape), rtol=tolerance, atol=tolerance
    )


def assert_unitary(x: np.ndarray, tolerance: float) -> None:
    """Columns, or rows where these are fewer."""
    x = x if x.shape[-2] >= x.shape[-1] else x.swapaxes(-1, -2)
    assert_close(adjoint(x) @ x, np.eye(x.shape[-1]), tolerance)


def check_lu(on_gpu: OnGpu, kind: str) -> None:
    """Rows are exchanged as pivots say, from 1 on; a matrix without a pivot is told of."""
    for count, m, n in SIZES:
        x, least, shape = matrices(kind, count, m, n), min(m, n), f"{kind}[{count},{m},{n}]"
        if count > 1:
            x[1] = 0
        result = f"({shape}, s32[{count},{least}], s32[{count}])"
        text = f"""HloModule calls
        ENTRY main {{
          x = {shape} parameter(0)
          {call("ROOT r", result, f"{LETTERS[kind]}getrf", "x")}
        }}
        """
        lu, pivots, info = run_on(on_gpu, text, x)
        for number in range(count):
            is_singular = count > 1 and number == 1
            assert (info[number] > 0) == is_singular
            if is_singular:
                continue
            rows = x[number].copy()
            for k, pivot in enumerate(pivots[number] - 1):
                assert k <= pivot < m
                rows[[k, pivot]] = rows[[pivot, k]]
            lower = np.tril(lu[number], -1)[:, :least] + np.eye(m, least, dtype=x.dtype)
            assert np.abs(lower).max() < 1.5  # pivots are the largest
            assert_close(lower @ np.triu(lu[number])[:least], rows, 20 * TYPES[kind])


def check_qr(on_gpu: OnGpu, kind: str) -> None:
    orgqr = "orgqr" if kind[0] == "f" else "ungqr"
    for count, m, n in SIZES:
        x, least, shape = matrices(kind, count, m, n), min(m, n), f"{kind}[{count},{m},{n}]"
        part, factors = f"{kind}[{count},{m},{least}]", f"{kind}[{count},{least}]"
        text = f"""HloModule calls
        ENTRY main {{
          x = {shape} parameter(0)
          {call("qr", f"({shape}, {factors})", f"{LETTERS[kind]}geqrf", "x")}
          r = {shape} get-tuple-element(qr), index=0
          tau = {factors} get-tuple-element(qr), index=1
          v = {part} slice(r), slice={{[0:{count}], [0:{m}], [0:{least}]}}
          {call("q", part, f"{LETTERS[kind]}{orgqr}", "v, tau")}
          ROOT results = ({shape}, {part}) tuple(r, q)
        }}
        """
        r, q = run_on(on_gpu, text, x)
        assert_unitary(q, 20 * TYPES[kind])
        assert_close(q @ np.triu(r)[:, :least], x, 20 * TYPES[kind])


def check_eigenvalues(on_gpu: OnGpu, kind: str) -> None:
    """The triangle that is not read holds something else. Vectors may have any sign."""
    name = "syevd" if kind[0] == "f" else "heevd"
    tolerance = 20 * TYPES[kind]
    for count, n in ((1, 1), (2, 6), (1, 40), (3, 33), (70, 5)):
        x = matrices(kind, count, n, n)
        whole = x + adjoint(x)
        lower = np.tri(n, dtype=bool)
        given = {"L": np.where(lower, whole, 9), "U": np.where(lower.T, whole, 9)}
        shape = f"{kind}[{count},{n},{n}]"
        leaves = [shape, f"{_PARTS[kind]}[{count},{n}]", f"s32[{count}]"]
        found = _run_flags(
            on_gpu,
            LETTERS[kind] + name,
            "uplo",
            {flag: (y.astype(x.dtype), leaves) for flag, y in given.items()},
        )
        for vectors, values, info in found:
            assert_close(values, np.linalg.eigvalsh(whole), tolerance)
            assert_close(whole @ vectors, vectors * values[:, None], tolerance)
            assert_unitary(vectors, tolerance)
            assert not info.any()


def check_singular_values(on_gpu: OnGpu, kind: str) -> None:
    """All vectors, those of values, and none: then u and vh have mode A's shapes and are zeros."""
    tolerance = 20 * TYPES[kind]
    for count, m, n in SIZES:
        x, least = matrices(kind, count, m, n), min(m, n)
        shape, values = f"{kind}[{count},{m},{n}]", f"{_PARTS[kind]}[{count},{least}]"
        calls = {}
        for mode in "ASN":
            rows, columns = (least, least) if mode == "S" else (m, n)
            vectors = [f"{kind}[{count},{m},{rows}]", f"{kind}[{count},{columns},{n}]"]
            calls[mode] = x, [shape, values, *vectors, f"s32[{count}]"]
        results = _run_flags(on_gpu, f"{LETTERS[kind]}gesdd", "mode", calls)
        for mode, (_, found, u, vh, info) in zip("ASN", results, strict=True):
            assert_close(found, np.linalg.svd(x, compute_uv=False), tolerance)
            assert not info.any()
            if mode == "N":
                assert not u.any()
                assert not vh.any()
                continue
            assert_close(u[..., :least] * found[:, None] @ vh[:, :least], x, tolerance)
            assert_unitary(u, tolerance)
            assert_unitary(vh, tolerance)


def _run_flags(
    on_gpu: OnGpu, target: str, flag: str, calls: dict[str, tuple[np.ndarray, list[str]]]
) -> list[list[np.ndarray]]:
    """Return the results of a program with a call for each value of a flag: its operand, and its results' shapes."""
    lines, names, shapes = [], [], []
    for number, (value, (_, leaves)) in enumerate(calls.items()):
        lines.append(f"p{value} = {leaves[0]} parameter({number})")
        config = f"{flag} = {ord(value)} : ui8"
        lines.append(call(f"c{value}", f"({', '.join(leaves)})", target, f"p{value}", config))
        for index, leaf in enumerate(leaves):
            lines.append(f"c{value}{index} = {leaf} get-tuple-element(c{value}), index={index}")
            names.append(f"c{value}{index}")
            shapes.append(leaf)
    body = "\n".join(lines)
    text = f"""HloModule calls
    ENTRY main {{
      {body}
      ROOT r = ({", ".join(shapes)}) tuple({", ".join(names)})
    }}
    """
    found = run_on(on_gpu, text, *(operand for operand, _ in calls.values()))
    size = len(found) // len(calls)
    return [found[start : start + size] for start in range(0, len(found), size)]
