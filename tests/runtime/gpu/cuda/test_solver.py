"""The arguments that cuSOLVER and cuBLAS get for factors and triangular systems, on a double of CuPy."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.gpu.linalg_work import (
    LibraryCall,
    SolverCall,
    SolverFunction,
    TriangularSolve,
)
from runtime.gpu.views import DeviceView
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double

F32, C128, S32 = PrimitiveType.F32, PrimitiveType.C128, PrimitiveType.S32
LEFT, RIGHT, LOWER, UPPER, N, T, C, NOT_UNIT, UNIT = 0, 1, 0, 1, 0, 1, 2, 0, 1


@pytest.fixture
def cupy() -> Iterator[CupyDouble]:
    with cupy_double() as double:
        yield double


@pytest.fixture
def calls(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked of the libraries: a function's name and its arguments behind the handle."""
    made: list[tuple[Any, ...]] = []

    def note(_: object, name: str, *arguments: Any) -> None:
        made.append((name, *arguments[1:]))
        if name.endswith("_bufferSize"):  # every function wants room for so many elements
            arguments[-1]._obj.value = 10

    blas = SimpleNamespace(cublasDestroy_v2=lambda _: 0)
    solver = SimpleNamespace(cusolverDnDestroy=lambda _: 0)
    for module, loader, library in (
        ("gemm", "load_cublas", blas),
        ("solver", "load_cusolver", solver),
    ):
        found = importlib.import_module(f"runtime.gpu.cuda.{module}")
        monkeypatch.setattr(found, loader, lambda library=library: library)
        monkeypatch.setattr(found, "call", note)
    return made


def view(address: int, kind: PrimitiveType, *dims: int) -> DeviceView:
    return DeviceView(address, StridedView.dense(ArrayShape(kind, dims)))


def made_by(
    call: LibraryCall, arrays: list[DeviceView], calls: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Have the driver run the call. Calls that only prepare it are left out."""
    driver = importlib.import_module("runtime.gpu.cuda.driver").CudaDriver(0)
    driver.load(call.on("step", tuple(arrays)))(driver.stream())
    rest = ("Create", "Stream", "MathMode", "Workspace", "bufferSize")
    return [one for one in calls if not any(word in one[0] for word in rest)]


def pointers(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def test_one_triangular_system(calls: list[tuple[Any, ...]]) -> None:
    solve = TriangularSolve(left=False, lower=True, op="C", unit=True)
    arrays = [view(4096, C128, 1, 3, 3), view(8192, C128, 1, 3, 5)]
    ((name, *found),) = made_by(solve, arrays, calls)
    assert name == "cublasZtrsm_v2"
    assert found[:6] == [RIGHT, LOWER, C, UNIT, 5, 3]
    assert found[7:] == [4096, 3, 8192, 5]


def test_small_triangular_systems_are_one_call(calls: list[tuple[Any, ...]]) -> None:
    solve = TriangularSolve(left=True, lower=False, op="T", unit=False)
    arrays = [view(4096, F32, 2, 2, 3, 3), view(8192, F32, 2, 2, 5, 3)]
    ((name, *found),) = made_by(solve, arrays, calls)
    assert name == "cublasStrsmBatched"
    assert found[:6] == [LEFT, UPPER, T, NOT_UNIT, 3, 5]
    a, lda, b, ldb, count = found[7:]
    assert (lda, ldb, count) == (3, 3, 4)
    assert pointers(a, 4) == [4096 + 36 * n for n in range(4)]
    assert pointers(b, 4) == [8192 + 60 * n for n in range(4)]


def test_large_triangular_systems_are_a_call_each(calls: list[tuple[Any, ...]]) -> None:
    solve = TriangularSolve(left=True, lower=True, op="N", unit=False)
    arrays = [view(1 << 20, F32, 2, 300, 300), view(1 << 24, F32, 2, 7, 300)]
    found = made_by(solve, arrays, calls)
    assert [one[0] for one in found] == ["cublasStrsm_v2"] * 2
    assert [one[8:] for one in found] == [
        (1 << 20, 300, 1 << 24, 300),
        ((1 << 20) + 360_000, 300, (1 << 24) + 8400, 300),
    ]


def test_cholesky_factors(calls: list[tuple[Any, ...]]) -> None:
    call = SolverCall(SolverFunction.POTRF, "L")
    ((name, *found),) = made_by(call, [view(4096, F32, 5, 5), view(8192, S32)], calls)
    assert name == "cusolverDnSpotrf"
    assert found[:4] == [LOWER, 5, 4096, 5]
    assert found[5:] == [10, 8192]


def test_cholesky_factors_of_a_batch(calls: list[tuple[Any, ...]]) -> None:
    call = SolverCall(SolverFunction.POTRF, "U")
    ((name, *found),) = made_by(call, [view(4096, C128, 3, 5, 5), view(8192, S32, 3)], calls)
    assert name == "cusolverDnZpotrfBatched"
    triangle, n, a, lda, infos, count = found
    assert (triangle, n, lda, infos, count) == (UPPER, 5, 5, 8192, 3)
    assert pointers(a, 3) == [4096 + 400 * i for i in range(3)]
