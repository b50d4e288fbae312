"""Native copies give NumPy's bytes from any strides to any others, and say when they cannot."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from runtime.cpu.kernels.copy.copy import merged_by_target, native_copy
from runtime.cpu.kernels.native_call import NOTHING, NativeAction
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.copy import CopyKernel

Array = np.ndarray[Any, Any]

DTYPES = (np.int8, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    count = int(np.prod(shape))
    return (np.arange(count) % 251 - 100).astype(dtype).reshape(shape)


def check(source: Array, target: Array) -> None:
    """``target`` is part of an array of which nothing else may change."""
    action = native_copy(source, target)
    assert isinstance(action, NativeAction)
    whole = target
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    before = whole.copy()
    action()
    written = target.copy()
    np.copyto(target, source)
    assert written.tobytes() == target.tobytes()
    target[...] = 0
    outside = whole.copy()
    np.copyto(whole, before)
    target[...] = 0
    assert outside.tobytes() == whole.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(
    "shape", [(1, 7), (33, 40), (64, 129), (100, 16), (5, 3), (1087, 515)], ids=str
)
def test_transposes(shape: tuple[int, int], dtype: Any) -> None:
    """Whole blocks, and what is left beside them."""
    x = numbers(shape, dtype)
    check(x.T, np.zeros(shape[::-1], dtype))
    padded = np.zeros((shape[1] + 3, shape[0] + 5), dtype)
    check(x.T, padded[1:-2, 2:-3])


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(4))), ids=str)
def test_permutations(permutation: tuple[int, ...]) -> None:
    x = numbers((3, 17, 20, 2)).transpose(permutation)
    check(x, np.zeros(x.shape, x.dtype))


@pytest.mark.parametrize(
    "source",
    [
        numbers((6, 8))[::-1, ::-1],
        numbers((6, 8))[:, ::3],
        numbers((6, 8))[1:4, 2:5],
        np.broadcast_to(numbers((8,)), (6, 8)),
        np.broadcast_to(numbers((6, 1)), (6, 8)),
        np.broadcast_to(np.float32(3), (6, 8)),
        numbers((6, 8, 2))[..., 1],
        numbers((4, 9, 3)).transpose(1, 0, 2),
        numbers((4, 9, 2)).transpose(1, 0, 2),
        numbers(()),
        numbers((5,)),
    ],
    ids=lambda a: f"{a.shape}{a.strides}",
)
def test_views(source: Array) -> None:
    check(source, np.zeros(source.shape, source.dtype))
    check(source, np.zeros((*source.shape, 2), source.dtype)[..., 0])


def test_more_dimensions_than_are_counted_are_numpys() -> None:
    x = numbers((2,) * 20).T
    target = np.zeros(x.shape, x.dtype)
    assert native_copy(x, target) is None
    CPU_KERNELS.bind(CopyKernel(), KernelArrays((x,), (target,)))()
    assert (target == x).all()


def test_overlapping_arrays_are_numpys() -> None:
    x = numbers((10,))
    assert native_copy(x[:-1], x[1:]) is None
    CPU_KERNELS.bind(CopyKernel(), KernelArrays((x[:-1],), (x[1:],)))()
    assert (x[1:] == numbers((10,))[:-1]).all()


def test_nothing_is_copied_where_there_is_nothing() -> None:
    assert native_copy(numbers((3, 0)), numbers((3, 0))) is NOTHING


def test_dimensions_that_lie_in_a_row_are_one() -> None:
    assert merged_by_target([(3, 8, 8), (1, 5, 5), (2, 4, 4)]) == [(6, 4, 4)]
    assert merged_by_target([(2, 4, 4), (3, 8, 8)]) == [(6, 4, 4)]
    assert merged_by_target([(3, 8, 4), (2, 4, 12)]) == [(2, 4, 12), (3, 8, 4)]
