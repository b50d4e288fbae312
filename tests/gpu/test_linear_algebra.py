"""Factors and triangular systems on a GPU: no kernel is the host's, and results are the evaluator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.conftest import OnGpu
from tests.runtime.gpu.decompositions import (
    check_eigenvalues,
    check_lu,
    check_qr,
    check_singular_values,
)
from tests.runtime.gpu.linear_algebra import (
    TYPES,
    check_cholesky,
    check_potrf,
    check_triangular_solve,
)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_cholesky(kind: str, on_gpu: OnGpu, *, lower: bool) -> None:
    check_cholesky(on_gpu, kind, lower=lower)


@pytest.mark.parametrize("kind", TYPES)
def test_potrf(kind: str, on_gpu: OnGpu) -> None:
    check_potrf(on_gpu, kind)


@pytest.mark.parametrize("kind", TYPES)
def test_triangular_solve(kind: str, on_gpu: OnGpu) -> None:
    check_triangular_solve(on_gpu, kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("check", [check_lu, check_qr, check_eigenvalues, check_singular_values])
def test_decompositions(check: Callable[[Any, str], None], kind: str, on_gpu: OnGpu) -> None:
    check(on_gpu, kind)
