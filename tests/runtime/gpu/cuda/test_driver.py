"""The driver's own code on a double of CuPy: what it asks of CUDA, and what it never asks."""

from __future__ import annotations

import ctypes
import gc
import importlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.errors import GpuFailedError, GpuMemoryError
from runtime.gpu.failures import failures_of
from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, KernelWork
from runtime.program.records.copy import CopyKernel
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.errors import RunError
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double


@pytest.fixture
def cupy() -> Iterator[CupyDouble]:
    with cupy_double() as double:
        yield double


def cuda_driver() -> Any:
    return importlib.import_module("runtime.gpu.cuda.driver").CudaDriver(0)


def test_new_memory_is_cleared_on_a_stream_of_its_own(cupy: CupyDouble) -> None:
    driver = cuda_driver()
    cupy.calls.clear()
    block = driver.allocate(64)
    assert cupy.calls == ["memsetAsync", "streamSynchronize"]
    data = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 64).from_address(block.address))
    assert not data.any()


def test_memory_of_another_allocator_is_cleared_and_freed(cupy: CupyDouble) -> None:
    driver = cuda_driver()
    memory = np.full(64, 7, np.uint8)
    freed: list[int] = []

    class Memory:
        ptr = memory.ctypes.data

        def __del__(self) -> None:
            freed.append(self.ptr)

    block = driver.allocate(64, lambda _: Memory())
    assert block.address == memory.ctypes.data
    assert not memory.any()
    assert cupy.live_bytes == 0
    del block
    assert freed == [memory.ctypes.data]


def test_an_allocator_without_memory_is_said(cupy: CupyDouble) -> None:
    def allocate(_: int) -> Any:
        raise RunError("ncclMemAlloc: unhandled cuda error")

    with pytest.raises(GpuMemoryError, match=r"64 bytes of a double.*: ncclMemAlloc: unhandled"):
        cuda_driver().allocate(64, allocate)


def empty_kernel() -> KernelWork:
    source = KernelSource("kernel", (), (), 0, 1, 32, ())
    return KernelWork(CopyKernel(), (source,), KernelArraysOnDevice((), ()))


def test_a_module_is_loaded_once_for_all_devices_of_a_gpu(cupy: CupyDouble) -> None:
    for _ in range(3):
        cuda_driver().load(empty_kernel())
    (text,) = cupy.loaded
    assert b".entry kernel(" in text


def test_a_text_that_cuda_refuses_is_explained(
    cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = cuda_driver()
    loader = importlib.import_module("runtime.gpu.cuda.ptx_loader")
    monkeypatch.setattr(loader, "ptx_text", lambda _, __: "no kernel")
    with (
        pytest.raises(GpuFailedError, match=r"^step on a double: CUDA .*error 218.*line 1; fatal"),
        failures_of(driver, "step"),
    ):
        driver.load(empty_kernel())


@pytest.mark.parametrize(
    ("kind", "tf32", "compute"),
    [("F32", False, 68), ("F32", True, 77), ("BF16", True, 68), ("F64", True, 70)],
)
def test_products_ask_for_their_type_of_sums(
    cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch, kind: str, tf32: bool, compute: int
) -> None:
    element = PrimitiveType[kind]
    sums = element if element is PrimitiveType.F64 else PrimitiveType.F32
    driver = cuda_driver()
    calls: list[tuple[Any, ...]] = []
    gemm = importlib.import_module("runtime.gpu.cuda.gemm")
    monkeypatch.setattr(gemm, "load_cublas", lambda: SimpleNamespace(cublasDestroy_v2=lambda _: 0))
    monkeypatch.setattr(gemm, "call", lambda _, *arguments: calls.append(arguments))
    view = DeviceView(4096, StridedView.dense(ArrayShape(element, (8, 8))))
    kernel = DotKernel((), 8, 8, 8, element, element, element, sums, tf32=tf32)
    work = library_work(kernel, KernelArraysOnDevice((view, view), (view,)))
    assert work is not None
    driver.load(work)(driver.stream())
    name, *arguments = calls[-1]
    assert name == "cublasGemmStridedBatchedEx"
    assert arguments[-2] == compute


def test_a_batch_by_pointers(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = cuda_driver()
    calls: list[tuple[Any, ...]] = []
    gemm = importlib.import_module("runtime.gpu.cuda.gemm")
    monkeypatch.setattr(gemm, "load_cublas", lambda: SimpleNamespace(cublasDestroy_v2=lambda _: 0))
    monkeypatch.setattr(gemm, "call", lambda _, *arguments: calls.append(arguments))
    # [batch 2, rows 8, heads 3, columns 4] as (2, 3) matrices of [8, 4]
    views = StridedView(PrimitiveType.F32, (2, 3, 8, 4), (384, 16, 48, 4))
    dense = StridedView.dense(ArrayShape(PrimitiveType.F32, (2, 3, 8, 8)))
    turned = StridedView(PrimitiveType.F32, (2, 3, 4, 8), (384, 16, 4, 48))
    f32 = PrimitiveType.F32
    kernel = DotKernel((2, 3), 8, 4, 8, f32, f32, f32, f32)
    arrays = KernelArraysOnDevice(
        (DeviceView(4096, views), DeviceView(8192, turned)), (DeviceView(16384, dense),)
    )
    work = library_work(kernel, arrays)
    assert work is not None
    enqueue = driver.load(work)
    enqueue(driver.stream())
    name, _, *arguments = calls[-1]
    assert name == "cublasGemmBatchedEx"
    assert len(arguments) + 1 == len(
        importlib.import_module("runtime.gpu.cuda.blas_api").FUNCTIONS[name]
    )
    pointers = [arguments[n] for n in (6, 9, 13)]
    starts = [
        first + 384 * i + 16 * j for first in (8192, 4096) for i in range(2) for j in range(3)
    ]
    starts += [16384 + 256 * i for i in range(6)]
    read = [list((ctypes.c_uint64 * 6).from_address(one)) for one in pointers]
    assert read == [starts[:6], starts[6:12], starts[12:]]
    assert arguments[16] == 6


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_memory_beside_a_capture_of_another_device(cupy: CupyDouble) -> None:
    first, second = cuda_driver(), cuda_driver()
    assert first.captures is second.captures  # both on GPU 0
    block = second.allocate(64)
    allocated = threading.Event()

    def allocate() -> None:
        second.allocate(64)
        allocated.set()

    with first.captures:
        cupy.gpu.capturing.append("first")
        thread = threading.Thread(target=allocate)
        thread.start()
        assert not allocated.wait(0.1)
        del block
        gc.collect()
        assert "free" not in cupy.calls
        cupy.gpu.capturing.remove("first")
    thread.join(20)
    assert allocated.is_set()
    assert "free" in cupy.calls
    assert cupy.live_bytes == 64 * cupy.calls.count("memsetAsync") - 64 * cupy.calls.count("free")
