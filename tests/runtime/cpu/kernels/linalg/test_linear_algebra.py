"""Cholesky factors and triangular systems by LAPACK and BLAS, against the evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.program.records.linalg import CholeskyKernel, TriangularSolveKernel
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.programs import compiled
from tests.runtime.programs.agreement import assert_agrees, kernels_of

TYPES = {"f32": 1e-4, "f64": 1e-10, "c64": 1e-4, "c128": 1e-10}


def matrices(kind: str, *dims: int) -> NDArray:
    rng = np.random.default_rng(0)
    dtype = PrimitiveType(kind).numpy
    x = rng.standard_normal(dims).astype(dtype)
    return x + 1j * rng.standard_normal(dims).astype(dtype) if dtype.kind == "c" else x


def positive(kind: str, count: int, size: int) -> NDArray:
    x = matrices(kind, count, size, size)
    return np.asarray(x @ x.conj().swapaxes(-1, -2) + size * np.eye(size, dtype=x.dtype))


def cholesky(kind: str, count: int, size: int, *, lower: bool) -> str:
    shape = f"{kind}[{count},{size},{size}]"
    return f"""HloModule factors
    ENTRY main {{
      p = {shape} parameter(0)
      n = {shape} negate(p)
      x = {shape} negate(n)
      y = {shape} cholesky(x), lower={str(lower).lower()}
      ROOT r = {shape} negate(y)
    }}
    """


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_cholesky(kind: str, *, lower: bool) -> None:
    """Matrices without a factor are nan, those before and behind them are not."""
    for count, size in ((3, 5), (1, 1), (2, 40)):
        text, x = cholesky(kind, count, size, lower=lower), positive(kind, count, size)
        kernels = kernels_of(assert_agrees(text, inputs=[x], rtol=TYPES[kind]))
        assert any(isinstance(kernel, CholeskyKernel) for kernel in kernels)
        x[-1] = -x[-1]
        assert_agrees(text, inputs=[x], rtol=TYPES[kind])
        x[-1] = np.nan
        assert_agrees(text, inputs=[x], rtol=TYPES[kind])


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_small_factors_have_the_evaluators_bits(kind: str, *, lower: bool) -> None:
    """The evaluator's bits are XLA's, and programs return residuals.

    NumPy adds sums of eight terms and more in another order.
    """
    for size in (2, 6, 7):
        text = cholesky(kind, 3, size, lower=lower)
        assert_agrees(text, inputs=[positive(kind, 3, size)])


@pytest.mark.parametrize("size", [6, 16, 17])
def test_small_systems(size: int) -> None:
    """Sizes are on either side of the one from which a library is used."""
    a = matrices("f32", 3, size, size) + 2 * size * np.eye(size, dtype=np.float32)
    for side, dims in (("true", f"{size},5"), ("false", f"5,{size}")):
        text = f"""HloModule solutions
        ENTRY main {{
          a = f32[3,{size},{size}] parameter(0)
          b = f32[3,{dims}] parameter(1)
          ROOT x = f32[3,{dims}] triangular-solve(a, b), left_side={side}, lower=false, transpose_a=TRANSPOSE
        }}
        """
        b = matrices("f32", 3, *map(int, dims.split(",")))
        assert_agrees(text, inputs=[a, b], rtol=1e-5)


def test_cholesky_over_its_operand() -> None:
    executable = compiled(cholesky("f32", 3, 5, lower=True))
    where = {value.name: value.slice for value in executable.program.assignment.values}
    assert where["y"] == where["x"]


@pytest.mark.parametrize("kind", TYPES)
def test_triangular_solve(kind: str) -> None:
    """All sides, triangles, diagonals and transpositions are solved.

    Matrices are read as they lie and as transposed ones.
    """
    a, tall, wide = matrices(kind, 2, 4, 4), matrices(kind, 2, 4, 3), matrices(kind, 2, 3, 4)
    a += 4 * np.eye(4, dtype=a.dtype)
    lines, shapes = [], []
    forms = itertools.product(("tall", "wide"), ("true", "false"), ("true", "false"), "NTA", "xt")
    for side, lower, unit, transpose, operand in forms:
        word = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "A": "ADJOINT"}[transpose]
        shapes.append(f"{kind}[2,{'4,3' if side == 'tall' else '3,4'}]")
        lines.append(
            f"v{len(lines)} = {shapes[-1]} triangular-solve({operand}, {side}), "
            f"left_side={str(side == 'tall').lower()}, lower={lower}, unit_diagonal={unit}, "
            f"transpose_a={word}"
        )
    body, names = "\n".join(lines), ", ".join(f"v{i}" for i in range(len(lines)))
    text = f"""HloModule solutions
    ENTRY main {{
      x = {kind}[2,4,4] parameter(0)
      tall = {kind}[2,4,3] parameter(1)
      wide = {kind}[2,3,4] parameter(2)
      t = {kind}[2,4,4] transpose(x), dimensions={{0,2,1}}
      {body}
      ROOT r = ({", ".join(shapes)}) tuple({names})
    }}
    """
    kernels = kernels_of(assert_agrees(text, inputs=[a, tall, wide], rtol=TYPES[kind]))
    assert sum(isinstance(kernel, TriangularSolveKernel) for kernel in kernels) == len(lines)


def test_triangular_solve_over_its_right_side() -> None:
    text = """HloModule solutions
    ENTRY main {
      a = f32[3,3] parameter(0)
      p = f32[3,2] parameter(1)
      b = f32[3,2] negate(p)
      x = f32[3,2] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
      ROOT r = f32[3,2] negate(x)
    }
    """
    executable = assert_agrees(text, rtol=1e-4)
    where = {value.name: value.slice for value in executable.program.assignment.values}
    assert where["x"] == where["b"]


POTRF = """HloModule calls
ENTRY main {{
  x = {kind}[3,5,5] parameter(0)
  ROOT r = ({kind}[3,5,5], s32[3]) custom-call(x), custom_call_target="lapack_{letter}potrf_ffi", backend_config={{uplo = {flag} : ui8}}
}}
"""


@pytest.mark.parametrize(("kind", "letter"), [*zip(TYPES, "sdcz", strict=True)])
@pytest.mark.parametrize("uplo", "LU")
def test_potrf_keeps_the_other_triangle_and_tells_what_failed(
    kind: str, letter: str, uplo: str
) -> None:
    x = positive(kind, 3, 5)
    x[1] = -x[1]
    text = POTRF.format(kind=kind, letter=letter, flag=ord(uplo))
    kernels = kernels_of(assert_agrees(text, inputs=[x], rtol=TYPES[kind]))
    assert [type(kernel) for kernel in kernels] == [CholeskyKernel]
