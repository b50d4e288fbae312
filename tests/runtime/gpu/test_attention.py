"""Attention fusions as kernels of a GPU: the call that is planned, on the doubles of the driver and of CuPy."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.sequence import library_sequence
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.triton.compilation import Cubin, compile_kernel
from runtime.gpu.views import DeviceView
from runtime.gpu.work import TritonWork
from runtime.program.strides import StridedView
from tests.runtime.gpu.attention_calls import fusion_of, launch_of, planned, work_on
from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.running import dense_views, expected, kernel_of, largest_error


@pytest.mark.parametrize("mode", ["forward", "of_rows", "of_columns"])
def test_a_fusion_is_one_call_that_a_graph_may_contain(mode: str) -> None:
    sequence, _ = planned(getattr(Attention(mask="causal"), mode)())
    assert sequence is not None
    assert sequence.can_be_captured
    assert sequence.workspace_bytes == 0
    assert launch_of(sequence).programs == 4  # 2 batches, and 2 blocks of rows or columns


def test_tf32_follows_the_program_and_the_option() -> None:
    allowed = Attention(precision=", operand_precision={default,default}").forward()
    assert '"tf32"' in launch_of(planned(allowed)[0]).text
    assert '"ieee"' not in launch_of(planned(allowed)[0]).text
    for sequence, _ in (
        planned(allowed, GpuOptions(tf32=False)),
        planned(Attention(precision=", operand_precision={highest,highest}").forward()),
    ):
        assert '"tf32"' not in launch_of(sequence).text


def test_on_the_double_of_the_driver() -> None:
    case = Attention(mask="causal")
    text, arrays = case.forward(), case.inputs()
    driver = HostDriver()
    operands, results = dense_views(text)
    blocks = [driver.allocate(view.byte_size) for view in (*operands, *results)]
    views = [
        DeviceView(block.address, view)
        for block, view in zip(blocks, (*operands, *results), strict=True)
    ]
    for view, array in zip(views, arrays, strict=False):
        driver.array(view)[...] = array
    enqueue = driver.load(work_on(text, views[:3], views[3:]))
    stream = driver.stream()
    enqueue(stream)
    stream.synchronize()
    got = [driver.array(view) for view in views[3:]]
    assert largest_error(got, expected(text, arrays)) == 0


def test_a_fusion_without_a_kernel_is_left_to_the_host() -> None:
    text = (
        Attention().forward().replace("larger", "least").replace("maximum(a, b)", "minimum(a, b)")
    )
    assert planned(text)[0] is None


# ---- the driver's own code
@pytest.fixture
def cupy() -> Iterator[CupyDouble]:
    with cupy_double() as double:
        yield double


def work_at(text: str, first: int) -> TritonWork:
    operands, results = dense_views(text)
    views = [DeviceView(first + (n << 20), view) for n, view in enumerate((*operands, *results))]
    return work_on(text, views[: len(operands)], views[len(operands) :])


@pytest.mark.parametrize("shared", [48 << 10, 100 << 10])
def test_a_launch(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch, shared: int) -> None:
    driver = importlib.import_module("runtime.gpu.cuda.driver")
    loader = importlib.import_module("runtime.gpu.cuda.triton_loader")
    cubin = Cubin(b"\x7fELF\0 a cubin", "entry", 256, shared)
    for module in (driver, loader):
        monkeypatch.setattr(module, "compiled", lambda *_: cubin)
    own = driver.CudaDriver(0)
    work = work_at(Attention().forward(), 4096)
    own.load(work)
    enqueue = own.load(work)  # it owns the parameters
    enqueue(own.stream())
    assert len(cupy.loaded) == 1
    function = (1, "entry")
    assert set(cupy.attributes) == ({(function, 8, shared)} if shared > 48 << 10 else set())
    ((launched, sizes, parameters),) = cupy.launches
    assert launched == function
    assert sizes == (work.launch.programs, 1, 1, 256, 1, 1, shared)
    places = (ctypes.c_void_p * 8).from_address(parameters)
    passed = [ctypes.c_uint64.from_address(place or 0).value for place in places]
    assert passed == [*(4096 + (n << 20) for n in range(6)), 0, 0]


def test_a_missing_triton_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(GpuLibraryError, match=r"needs Triton.*spmd-executor\[gpu\]"):
        compile_kernel(kernel_of(Attention().forward()), "sm_90")


def test_texts_do_not_contain_names_of_the_program() -> None:
    text = Attention().forward()
    strange = text.replace("qk", "rm_minus_rf").replace("HloModule attention", "HloModule evil")
    assert kernel_of(strange) == kernel_of(text)
    assert "rm_minus_rf" not in kernel_of(strange).text


def test_an_array_that_is_not_aligned() -> None:
    text = Attention().forward()
    operands, results = dense_views(text)
    moved = [StridedView(v.element_type, v.dims, v.strides, 4) for v in operands]
    make = launch_maker(HostDriver())
    sequence = library_sequence(fusion_of(text), tuple(moved), tuple(results), make, DEFAULT)
    assert launch_of(sequence).aligned == (False,) * 3 + (True,) * 3
    assert np.all(launch_of(planned(text)[0]).aligned)
