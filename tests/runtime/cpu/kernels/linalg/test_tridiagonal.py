"""Tridiagonal systems by LAPACK from native code, beside the evaluator."""

from __future__ import annotations

import pytest

from runtime.program.records.linalg import TridiagonalSolveKernel
from tests.runtime.cpu.kernels.linalg.test_factorizations import LETTERS, call
from tests.runtime.cpu.kernels.linalg.test_linear_algebra import matrices
from tests.runtime.programs.agreement import assert_agrees, kernels_of


@pytest.mark.parametrize(("kind", "letter"), LETTERS)
@pytest.mark.parametrize(("batch", "n", "count"), [((), 5, 1), ((3,), 7, 2), ((2, 2), 1, 3)])
def test_gtsv(kind: str, letter: str, batch: tuple[int, ...], n: int, count: int) -> None:
    below, diagonal, above = (matrices(kind, *batch, n) for _ in range(3))
    diagonal += 4
    if len(batch) == 1:
        below[1], diagonal[1] = 0, 0  # has no pivot
    sides = matrices(kind, *batch, n, count)
    line = f"{kind}[{','.join(map(str, (*batch, n)))}]"
    right = f"{kind}[{','.join(map(str, (*batch, n, count)))}]"
    info = f"s32[{','.join(map(str, batch))}]"
    text = call(
        f"({line}, {line}, {line}, {right}, {info})", [line, line, line, right], f"{letter}gtsv"
    )
    inputs = [below, diagonal, above, sides]
    executable = assert_agrees(text, inputs=inputs, rtol=2e-4 if kind in ("f32", "c64") else 1e-9)
    assert [type(kernel) for kernel in kernels_of(executable)] == [TridiagonalSolveKernel]
