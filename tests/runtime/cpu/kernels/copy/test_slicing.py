"""Dynamic slices, pad and concatenate as native copies: starts are clamped, nothing else is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.cpu.kernels.native_call import NativeAction
from runtime.program.kernel import CPU_KERNELS, Kernel, KernelArrays
from runtime.program.records.copy import (
    ConcatenateKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)

Array = np.ndarray[Any, Any]


def run(kernel: Kernel, operands: list[Array], out: Array) -> Array:
    action = CPU_KERNELS.bind(kernel, KernelArrays(tuple(operands), (out,)))
    assert isinstance(action, NativeAction)
    action()
    return out


def clamped(start: int, size: int, whole: int) -> slice:
    first = min(max(start, 0), whole - size)
    return slice(first, first + size)


STARTS = [
    (np.int32, (0, 0)),
    (np.int32, (2, 3)),
    (np.int32, (-7, 100)),
    (np.uint8, (1, 255)),
    (np.int64, (2**62, -(2**62))),
    (np.uint64, (2**63 + 5, 1)),
    (np.uint32, (2**32 - 1, 0)),
]


@pytest.mark.parametrize(("index", "starts"), STARTS)
@pytest.mark.parametrize("sizes", [(2, 3), (5, 4), (1, 7), (5, 7)])
def test_dynamic_slice_and_update(
    index: Any, starts: tuple[int, int], sizes: tuple[int, int]
) -> None:
    whole = np.arange(35, dtype=np.float32).reshape(5, 7)
    places = [np.array(start, index) for start in starts]
    block = tuple(clamped(s, n, m) for s, n, m in zip(starts, sizes, whole.shape, strict=True))
    out = run(DynamicSliceKernel(sizes), [whole, *places], np.zeros(sizes, np.float32))
    assert (out == whole[block]).all()
    update = -1 - np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(sizes)
    want = whole.copy()
    want[block] = update
    kernel = DynamicUpdateSliceKernel()
    assert (run(kernel, [whole, update, *places], np.zeros_like(whole)) == want).all()
    assert (run(kernel, [whole, update, *places], whole) == want).all()


def test_starts_are_read_anew_in_each_run() -> None:
    whole, start = np.arange(10, dtype=np.int16), np.array(1, np.int32)
    out = np.zeros(4, np.int16)
    arrays = KernelArrays((whole[::-1], start), (out,))
    action = CPU_KERNELS.bind(DynamicSliceKernel((4,)), arrays)
    for first in (1, 5, 2):
        start[()] = first
        action()
        assert (out == whole[::-1][first : first + 4]).all()


def test_a_slice_of_a_scalar_is_the_scalar() -> None:
    out = run(DynamicSliceKernel(()), [np.array(3.0)], np.zeros(()))
    assert out == 3


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_concatenate(dimension: int) -> None:
    shape = [3, 4, 5]
    parts = []
    for size in (2, 0, 1, 6):
        shape[dimension] = size
        parts.append(np.random.default_rng(size).integers(0, 99, shape).astype(np.int32))
    want = np.concatenate(parts, dimension)
    assert (run(ConcatenateKernel(dimension), parts, np.zeros_like(want)) == want).all()


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ((slice(1, 4, 1), slice(2, 6, 1)), (slice(0, 3), slice(0, 4))),
        ((slice(0, 5, 2), slice(1, 8, 2)), (slice(0, 3), slice(0, 4))),
        ((slice(0, 5, 2), slice(3, 5, 1)), (slice(0, 3), slice(1, 3))),
        ((slice(0, 6, 1), slice(0, 8, 1)), (slice(0, 3), slice(0, 4))),
        ((slice(2, 2, 1), slice(3, 7, 1)), (slice(0, 0), slice(0, 4))),
    ],
    ids=["around", "inside", "both", "whole", "empty"],
)
def test_pad(target: tuple[slice, ...], source: tuple[slice, ...]) -> None:
    x = np.arange(48, dtype=np.float64).reshape(6, 8)
    if source[0].stop == 3 and target[0] != slice(0, 6, 1):
        x = x[:3, :4]
    else:
        source = tuple(slice(0, t.stop - t.start) for t in target)
    out = np.full((6, 8), -5.0)
    want = np.full((6, 8), 9.0)
    want[target] = x[source]
    run(PadKernel(source, target), [x, np.array(9.0)], out)
    assert (out == want).all()
