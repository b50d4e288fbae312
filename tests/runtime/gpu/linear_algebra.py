"""Programs of linear algebra, for doubles and for GPUs, and what is asked of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from runtime.executable import Executable
from spmd.evaluator.evaluator import evaluate
from spmd.shape import PrimitiveType
from tests.runtime.programs import compiled

#: Tolerances by element type.
TYPES = {"f32": 1e-4, "f64": 1e-10, "c64": 1e-4, "c128": 1e-10}
LETTERS = dict(zip(TYPES, "sdcz", strict=True))
#: (matrices, rows): alone and in batches, around the sizes of warps and of blocks.
SIZES = [(1, 1), (3, 5), (1, 33), (2, 40), (70, 6), (1, 130)]
#: (matrices, rows, right-hand sides) of triangular systems.
SYSTEMS = [(2, 4, 3), (1, 5, 1), (1, 67, 40), (70, 3, 2), (3, 33, 9)]

OnGpu = Callable[[Executable], Executable]


def matrices(kind: str, *dims: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    dtype = PrimitiveType(kind).numpy
    x = rng.standard_normal(dims).astype(dtype)
    return x + 1j * rng.standard_normal(dims).astype(dtype) if dtype.kind == "c" else x


def positive(kind: str, count: int, size: int) -> np.ndarray:
    x = matrices(kind, count, size, size)
    return np.asarray(x @ x.conj().swapaxes(-1, -2) + size * np.eye(size, dtype=x.dtype))


def run_on(on_gpu: OnGpu, text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    executable = on_gpu(compiled(text))
    return run(executable, *inputs)


def run(executable: Executable, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run the program three times, so that its graphs are captured and launched. The host computes no kernel."""
    results = [executable.run(*inputs) for _ in range(3)]
    forms = executable.kernel_report
    assert forms is not None
    assert forms.library > 0
    assert not forms.hosted, forms
    for again in results[1:]:
        for one, other in zip(results[0], again, strict=True):
            np.testing.assert_array_equal(one, other)
    return list(results[0])


def agree(on_gpu: OnGpu, text: str, *runs: list[np.ndarray], tolerance: float) -> None:
    """Compare with the reference evaluator. ``runs``: inputs of each."""
    executable = on_gpu(compiled(text))
    for inputs in runs:
        found = run(executable, *inputs)
        for got, want in zip(found, evaluate(executable.module, *inputs), strict=True):
            assert got.dtype == want.dtype
            wide = [x.astype(np.complex128) for x in (got, want)]
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)


def cholesky(kind: str, count: int, size: int, *, lower: bool) -> str:
    shape = f"{kind}[{count},{size},{size}]"
    return f"""HloModule factors
    ENTRY main {{
      p = {shape} parameter(0)
      x = {shape} negate(p)
      y = {shape} cholesky(x), lower={str(lower).lower()}
      ROOT r = {shape} negate(y)
    }}
    """


def check_cholesky(on_gpu: OnGpu, kind: str, *, lower: bool) -> None:
    """Matrices without a factor are nan, those before them are not."""
    for count, size in SIZES:
        text, x = cholesky(kind, count, size, lower=lower), positive(kind, count, size)
        x[-1] *= -1
        y = x.copy()
        y[-1] = np.nan
        agree(on_gpu, text, [-x], [-y], tolerance=TYPES[kind])


def check_potrf(on_gpu: OnGpu, kind: str) -> None:
    """The other triangle is the operand's, also of transposed operands, and failures are told."""
    for count, size in SIZES:
        x = positive(kind, count, size)
        x[-1] *= -1
        x += 0.25 * np.triu(np.ones_like(x), 1)  # which only one of the triangles has
        shape = f"{kind}[{count},{size},{size}]"
        calls = [
            f"""f{operand}{uplo} = ({shape}, s32[{count}]) custom-call({operand}), custom_call_target="lapack_{LETTERS[kind]}potrf_ffi", backend_config={{uplo = {ord(uplo)} : ui8}}
          a{operand}{uplo} = {shape} get-tuple-element(f{operand}{uplo}), index=0
          i{operand}{uplo} = s32[{count}] get-tuple-element(f{operand}{uplo}), index=1"""
            for operand, uplo in itertools.product("pt", "LU")
        ]
        names = [
            f"{of}{operand}{uplo}" for operand, uplo in itertools.product("pt", "LU") for of in "ai"
        ]
        lines = "\n          ".join(calls)
        text = f"""HloModule calls
        ENTRY main {{
          p = {shape} parameter(0)
          t = {shape} transpose(p), dimensions={{0,2,1}}
          {lines}
          ROOT r = ({", ".join(4 * [shape, f"s32[{count}]"])}) tuple({", ".join(names)})
        }}
        """
        agree(on_gpu, text, [x], tolerance=TYPES[kind])


def check_triangular_solve(on_gpu: OnGpu, kind: str) -> None:
    """Check all sides, triangles, diagonals and transpositions.

    Matrices are read as they lie and as transposed ones.
    """
    for count, size, columns in SYSTEMS:
        _check_systems(on_gpu, kind, count, size, columns)


def _check_systems(on_gpu: OnGpu, kind: str, count: int, size: int, columns: int) -> None:
    tall, wide = f"{kind}[{count},{size},{columns}]", f"{kind}[{count},{columns},{size}]"
    square = f"{kind}[{count},{size},{size}]"
    lines, shapes = [], []
    bools = ("true", "false")
    for side, lower, unit, op, operand in itertools.product(
        ("tall", "wide"), bools, bools, ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "xt"
    ):
        shapes.append(tall if side == "tall" else wide)
        lines.append(
            f"v{len(lines)} = {shapes[-1]} triangular-solve({operand}, {side}), left_side={str(side == 'tall').lower()}, "
            f"lower={lower}, unit_diagonal={unit}, transpose_a={op}"
        )
    body, names = "\n".join(lines), ", ".join(f"v{i}" for i in range(len(lines)))
    text = f"""HloModule solutions
    ENTRY main {{
      x = {square} parameter(0)
      tall = {tall} parameter(1)
      w = {tall} parameter(2)
      wide = {wide} transpose(w), dimensions={{0,2,1}}
      t = {square} transpose(x), dimensions={{0,2,1}}
      {body}
      ROOT r = ({", ".join(shapes)}) tuple({names})
    }}
    """
    a = matrices(kind, count, size, size) / size
    a += np.eye(size, dtype=a.dtype)
    sides = [matrices(kind, count, size, columns) for _ in range(2)]
    agree(on_gpu, text, [a, *sides], tolerance=10 * TYPES[kind])
