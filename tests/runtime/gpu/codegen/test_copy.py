"""Tests of copies and slices on a GPU: the processor's bytes, between any strides; nothing else is written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from runtime.gpu.codegen import loop, tiled_loop
from runtime.gpu.codegen.copy import emit_copy
from runtime.gpu.codegen.emitters import GpuArrays, Sources, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.kernel import KernelArrays
from runtime.program.records.copy import (
    ConcatenateKernel,
    CopyKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.cpu.kernels.copy.test_copy import DTYPES, numbers
from tests.runtime.cpu.kernels.copy.test_slicing import STARTS
from tests.runtime.fusion.test_block_updates import DONATED, update
from tests.runtime.fusion.test_loop_fusions import edge_inputs
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import both_ways, compare
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled

pytestmark = needs_contexts


@pytest.fixture(autouse=True)
def _few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "THREADS", 32)
    monkeypatch.setattr(tiled_loop, "LEAST_BLOCKS", 0)


def check(source: Any, target: Any) -> None:
    compare(CopyKernel(), KernelArrays((source,), (target,)))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(1, 7), (33, 40), (64, 129), (100, 16), (5, 3)], ids=str)
@pytest.mark.parametrize("least", [0, 4])
def test_transposes(
    least: int, shape: tuple[int, int], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays fill whole tiles or leave some elements over; tiles are large, or small as those of small arrays."""
    monkeypatch.setattr(tiled_loop, "LEAST_BLOCKS", least)
    x = numbers(shape, dtype)
    check(x.T, np.zeros(shape[::-1], dtype))
    padded = np.zeros((shape[1] + 3, shape[0] + 5), dtype)
    check(x.T, padded[1:-2, 2:-3])


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0), (1, 0, 2)], ids=str)
def test_orders(order: tuple[int, int, int]) -> None:
    for dtype in (np.int8, ml_dtypes.bfloat16, np.float32):
        x = numbers((9, 34, 66), dtype)
        y = x.transpose(order)
        check(y, np.zeros(y.shape, dtype))
        check(y[::-1], np.zeros(y.shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_neighbours_from_any_byte_on(dtype: Any) -> None:
    for count in (1, 15, 64, 333):
        x = numbers((count + 5,), dtype)
        for start in (0, 1, 3):
            check(x[start : start + count], np.zeros(count + 9, dtype)[5 - start :][:count])


def test_repeated_elements() -> None:
    x = numbers((3, 1), np.int16)
    check(np.broadcast_to(x, (3, 50)), np.zeros((3, 50), np.int16))
    check(np.broadcast_to(x[0, 0], (7, 9)), np.zeros((7, 9), np.int16))


def test_nothing() -> None:
    view = StridedView.dense(ArrayShape(PrimitiveType.F32, (3, 0)))
    assert emit_copy(CopyKernel(), GpuArrays((view,), (view,), (), GpuTarget())) == ()


# ---- blocks
@pytest.mark.parametrize(("index", "starts"), STARTS)
@pytest.mark.parametrize("sizes", [(2, 3), (5, 4), (1, 7), (5, 7)])
def test_dynamic_slice_and_update(
    index: Any, starts: tuple[int, int], sizes: tuple[int, int]
) -> None:
    whole = np.arange(35, dtype=np.float32).reshape(5, 7)
    places = [np.array(start, index) for start in starts]
    out = np.zeros(sizes, np.float32)
    compare(DynamicSliceKernel(sizes), KernelArrays((whole, *places), (out,)))
    block = -1 - np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(sizes)
    kernel = DynamicUpdateSliceKernel()
    compare(kernel, KernelArrays((whole, block, *places), (np.zeros_like(whole),)))
    compare(kernel, KernelArrays((whole, block, *places), (whole,)))


def test_wide_elements_move_by_their_stride() -> None:
    whole, start = numbers((9, 64), np.int8), np.array(4, np.int32)
    zero = np.array(0, np.int32)
    kernel = DynamicSliceKernel((3, 64))
    compare(kernel, KernelArrays((whole, start, zero), (np.zeros((3, 64), np.int8),)))
    kernel = DynamicSliceKernel((9, 16))
    compare(kernel, KernelArrays((whole, zero, start), (np.zeros((9, 16), np.int8),)))


@pytest.mark.parametrize("dimension", [0, 1])
def test_concatenate(dimension: int) -> None:
    parts = [numbers((4, n)[:: 1 if dimension else -1], np.int16) for n in (3, 0, 16, 40)]
    out = np.zeros(np.concatenate(parts, dimension).shape, np.int16)
    compare(ConcatenateKernel(dimension), KernelArrays(tuple(parts), (out,)))


PADS = {
    "around": ((slice(None), slice(None)), (slice(2, 7), slice(3, 9)), (10, 9)),
    "within": ((slice(None), slice(None)), (slice(1, 10, 2), slice(0, 16, 3)), (12, 16)),
    "cut": ((slice(1, 4), slice(0, 5)), (slice(0, 3), slice(2, 7)), (3, 8)),
}


@pytest.mark.parametrize("case", PADS)
def test_pad(case: str) -> None:
    source, target, dims = PADS[case]
    operands = numbers((5, 6), np.float32), np.array(7, np.float32)
    compare(PadKernel(source, target), KernelArrays(operands, (np.zeros(dims, np.float32),)))


@pytest.mark.parametrize("header", ["", DONATED])
def test_updates(header: str) -> None:
    """The updated array is still needed, so that it is copied first, or it dies."""
    ran = 0
    for seed in range(25):
        with both_ways() as compared:
            executable = compiled(update(seed, header))
            inputs = edge_inputs(executable.module, seed)
            inputs[2:] = [np.array(seed % 7 - 2).astype(x.dtype) for x in inputs[2:]]
            with np.errstate(all="ignore"):
                executable.run(*inputs)
        ran += compared.run["UpdateKernel"]
    assert ran == 25


# ---- what ptxas says
def copied(dtype: Any, dims: tuple[int, ...], order: tuple[int, ...]) -> Sources:
    kind = PrimitiveType.from_numpy(np.dtype(dtype))
    target = StridedView.dense(ArrayShape(kind, dims))
    source = StridedView.dense_in_order(ArrayShape(kind, dims), order)
    return sources(CopyKernel(), GpuArrays((source,), (target,), (), GpuTarget()))


@needs_assembler
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=("copy", "transpose"))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_accepted_without_spills(dtype: Any, order: tuple[int, int]) -> None:
    for dims in ((4096, 4096), (1000, 1001)):
        assert [x.spilled for x in accepted(copied(dtype, dims, order))] == [0, 0, 0]


def test_wide_copies_move_16_bytes() -> None:
    (found,) = copied(np.int8, (1024, 1024), (0, 1)) or ()
    assert "load i128" in found.ir
