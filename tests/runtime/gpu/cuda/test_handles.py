"""Tests that handles of libraries are destroyed with their owners, and never while a thread captures a graph."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double


@pytest.fixture
def cupy() -> Iterator[CupyDouble]:
    with cupy_double() as double:
        yield double


@pytest.fixture
def destroyed(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the functions that have destroyed handles. Each waits for the whole GPU, as the libraries do."""
    found: list[str] = []

    def destroy(name: str) -> Callable[[object], int]:
        def called(_: object) -> int:
            cupy.gpu.synchronize()
            found.append(name)
            return 0

        return called

    for module, loader, function in (
        ("gemm", "load_cublas", "cublasDestroy_v2"),
        ("solver", "load_cusolver", "cusolverDnDestroy"),
    ):
        library = SimpleNamespace(**{function: destroy(function)}, _name="libcusolver.so.12")
        imported = importlib.import_module(f"runtime.gpu.cuda.{module}")
        monkeypatch.setattr(imported, loader, lambda library=library: library)
        monkeypatch.setattr(imported, "call", lambda *_: None)
    cudnn = ModuleType("cudnn")
    names = ("HALF", "BFLOAT16", "FLOAT", "DOUBLE")
    cudnn.data_type = SimpleNamespace(**{name: name for name in names})  # type: ignore[attr-defined]
    notes = (
        "NONDETERMINISTIC",
        "TENSOR_CORE",
        "DOWN_CONVERT_INPUTS",
        "REDUCED_PRECISION_REDUCTION",
    )
    cudnn.numerical_note = SimpleNamespace(**{name: name for name in notes})  # type: ignore[attr-defined]
    cudnn.create_handle = object  # type: ignore[attr-defined]
    cudnn.destroy_handle = destroy("cudnnDestroy")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudnn", cudnn)
    return found


def cuda_driver() -> Any:
    return importlib.import_module("runtime.gpu.cuda.driver").CudaDriver(0)


@pytest.mark.usefixtures("own_objects_alone_are_collected")
@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("_cublas", "cublasDestroy_v2"),
        ("_cusolver", "cusolverDnDestroy"),
        ("_cudnn", "cudnnDestroy"),
    ],
)
def test_a_handle_is_destroyed_with_its_driver_when_no_graph_is_captured(
    cupy: CupyDouble, destroyed: list[str], library: str, function: str
) -> None:
    other, driver = cuda_driver(), cuda_driver()  # two devices of a process on one GPU
    getattr(driver, library)
    with other.captures:
        cupy.gpu.capturing.append("other")
        del driver
        gc.collect()
        assert destroyed == []
        cupy.gpu.capturing.remove("other")
    assert destroyed == [function]
