"""reduce-window by a recognised reducer: one NumPy call per element of the window, or one that accumulates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.blocks import part
from runtime.kernels.reduce import UFUNCS
from spmd.device import ReductionKind
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class ReduceWindowKernel(Kernel):
    """results[0] = init op (the elements of operands[0] that each window covers); operands[1] is the scalar init.

    Padding takes no part. The base is not dilated. scratch[0]: the results in ``accumulate``, where that is wider.
    """

    window: Window
    reduction: ReductionKind
    accumulate: PrimitiveType


@NUMPY_KERNELS.binds(ReduceWindowKernel)
def bind_reduce_window(kernel: ReduceWindowKernel, arrays: KernelArrays) -> Action:
    source, init = arrays.operands
    (result,) = arrays.results
    total = arrays.scratch[0] if arrays.scratch else result
    ufunc = UFUNCS[kernel.reduction]
    calls = _accumulation(kernel, ufunc, source, init, total)
    if calls is None:
        calls = _over_window(kernel, ufunc, source, init, total)

    def run() -> None:
        for call in calls:
            call()
        if total is not result:
            np.copyto(result, total, casting="unsafe")

    return run


def _over_window(
    kernel: ReduceWindowKernel, ufunc: np.ufunc, source: NDArray, init: NDArray, total: NDArray
) -> list[Callable[[], object]]:
    """Element k of all windows at a time: a strided part of the source, for those that cover it."""
    calls: list[Callable[[], object]] = [partial(np.copyto, total, init, casting="unsafe")]
    sizes = zip(source.shape, total.shape, kernel.window.dims, strict=True)
    parts = [[_covering(n, out, dim, k) for k in range(dim.size)] for n, out, dim in sizes]
    kind = kernel.accumulate.numpy
    for element in itertools.product(*parts):
        target = part(total, tuple(windows for windows, _ in element))
        if target.size:
            operand = part(source, tuple(covered for _, covered in element))
            calls.append(partial(ufunc, target, operand, out=target, dtype=kind, casting="unsafe"))
    return calls


def _covering(n: int, out: int, dim: WindowDimension, k: int) -> tuple[slice, slice]:
    """Windows whose element ``k`` is an element of the source and not padding, and those elements."""
    shift = k * dim.window_dilation - dim.padding_low
    first = max(0, -(shift // dim.stride))
    end = min(out, (n - 1 - shift) // dim.stride + 1)
    if end <= first:
        return slice(0, 0), slice(0, 0)
    start = first * dim.stride + shift
    return slice(first, end), slice(start, start + (end - first - 1) * dim.stride + 1, dim.stride)


def _accumulation(
    kernel: ReduceWindowKernel, ufunc: np.ufunc, source: NDArray, init: NDArray, total: NDArray
) -> list[Callable[[], object]] | None:
    """Where every window covers all that stands before (or behind) its place along one dimension: a running total."""
    axes = [axis for axis, dim in enumerate(kernel.window.dims) if dim != WindowDimension()]
    if len(axes) != 1 or source.size == 0:
        return None
    (axis,) = axes
    size = source.shape[axis]
    forwards = WindowDimension(size, padding_low=size - 1)
    backwards = WindowDimension(size, padding_high=size - 1)
    if kernel.window.dims[axis] not in (forwards, backwards):
        return None
    if kernel.window.dims[axis] == backwards:
        source, total = np.flip(source, axis), np.flip(total, axis)
    kind = kernel.accumulate.numpy
    return [
        partial(ufunc.accumulate, source, axis=axis, dtype=kind, out=total),
        partial(ufunc, init, total, out=total, dtype=kind, casting="unsafe"),
    ]
