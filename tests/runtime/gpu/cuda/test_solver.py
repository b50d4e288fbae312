"""The arguments that cuSOLVER and cuBLAS get for factors and triangular systems, on a double of CuPy."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.gpu.libraries.linalg_work import (
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
    """Return a list of the calls of the libraries: a function's name and its arguments after the handle."""
    made: list[tuple[Any, ...]] = []

    def note(_: object, name: str, *arguments: Any) -> None:
        made.append((name, *arguments[1:]))
        if name.endswith("_bufferSize"):  # every function wants room for so many elements
            for argument in arguments:
                if hasattr(argument, "_obj"):
                    argument._obj.value = 10

    blas = SimpleNamespace(cublasDestroy_v2=lambda _: 0)
    solver = SimpleNamespace(cusolverDnDestroy=lambda _: 0, _name="libcusolver.so.12")
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
    driver.load(call.on(tuple(arrays)))(driver.stream())
    rest = ("Create", "Params", "Stream", "MathMode", "Workspace", "bufferSize")
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


def test_lu(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, F32, 2, 4, 7), view(8192, S32, 2, 4), view(9000, S32, 2)]
    found = made_by(SolverCall(SolverFunction.GETRF), arrays, calls)
    assert [one[0] for one in found] == ["cusolverDnSgetrf"] * 2
    assert [(*one[1:5], *one[6:]) for one in found] == [
        (7, 4, 4096, 7, 8192, 9000),
        (7, 4, 4096 + 112, 7, 8192 + 16, 9004),
    ]


def test_lu_of_a_batch(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, C128, 2, 3, 3), view(8192, S32, 2, 3), view(9000, S32, 2)]
    ((name, n, a, *found),) = made_by(SolverCall(SolverFunction.GETRF), arrays, calls)
    assert name == "cublasZgetrfBatched"
    assert n == 3
    assert pointers(a, 2) == [4096, 4096 + 144]
    assert found == [3, 8192, 9000, 2]


def test_qr(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, F32, 4, 200), view(8192, F32, 4), view(9000, S32)]
    ((name, *found),) = made_by(SolverCall(SolverFunction.GEQRF), arrays, calls)
    assert name == "cusolverDnSgeqrf"
    assert found[:5] == [200, 4, 4096, 200, 8192]
    assert found[6:] == [10, 9000]


def test_qr_of_a_batch(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, F32, 2, 4, 7), view(8192, F32, 2, 4), view(9000, S32, 2)]
    ((name, m, n, a, lda, taus, _, count),) = made_by(
        SolverCall(SolverFunction.GEQRF), arrays, calls
    )
    assert name == "cublasSgeqrfBatched"
    assert (m, n, lda, count) == (7, 4, 7, 2)
    assert pointers(a, 2) == [4096, 4096 + 112]
    assert pointers(taus, 2) == [8192, 8192 + 16]


def test_reflectors_to_a_matrix(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, C128, 2, 4, 7), view(8192, C128, 2, 3), view(9000, S32, 2)]
    found = made_by(SolverCall(SolverFunction.ORGQR), arrays, calls)
    assert [one[0] for one in found] == ["cusolverDnZungqr"] * 2
    assert [one[1:7] for one in found] == [
        (7, 4, 3, 4096, 7, 8192),
        (7, 4, 3, 4096 + 448, 7, 8192 + 48),
    ]


def test_eigenvalues(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, C128, 5, 5), view(8192, PrimitiveType.F64, 5), view(9000, S32)]
    ((name, *found),) = made_by(SolverCall(SolverFunction.SYEVD, "U"), arrays, calls)
    assert name == "cusolverDnZheevd"
    assert found[:6] == [1, UPPER, 5, 4096, 5, 8192]
    assert found[7:] == [10, 9000]


def test_eigenvalues_of_a_batch(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, C128, 3, 5, 5), view(8192, PrimitiveType.F64, 3, 5), view(9000, S32, 3)]
    ((name, _, *found),) = made_by(SolverCall(SolverFunction.SYEVD, "L"), arrays, calls)
    assert name == "cusolverDnXsyevBatched"
    complex_type, real_type = 5, 1  # the double's numbers
    assert found[:9] == [1, LOWER, 5, complex_type, 4096, 5, real_type, 8192, complex_type]
    assert (found[10], found[12]) == (10, 10)
    assert found[13:] == [9000, 3]


def test_singular_values(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, F32, 4, 7), view(8192, F32, 4), view(9216, F32, 4, 7)]
    arrays += [view(9728, F32, 4, 4), view(9984, S32)]
    ((name, *found),) = made_by(SolverCall(SolverFunction.GESVD, "S"), arrays, calls)
    assert name == "cusolverDnSgesvd"
    assert found[:11] == [ord("S"), ord("S"), 7, 4, 4096, 7, 8192, 9216, 7, 9728, 4]
    assert found[12:] == [10, None, 9984]


def test_singular_values_of_a_batch(calls: list[tuple[Any, ...]]) -> None:
    arrays = [view(4096, F32, 2, 4, 7), view(8192, F32, 2, 4), view(9216, F32, 2, 7, 7)]
    arrays += [view(10240, F32, 2, 4, 4), view(10496, S32, 2)]
    ((name, *found),) = made_by(SolverCall(SolverFunction.GESVDJ, "A"), arrays, calls)
    assert name == "cusolverDnSgesvdjBatched"
    assert found[:10] == [1, 7, 4, 4096, 7, 8192, 9216, 7, 10240, 4]
    assert found[11:13] == [10, 10496]
    assert found[14] == 2
