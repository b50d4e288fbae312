"""Triton kernels run in Triton's interpreter on arrays of any layout, next to the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.gpu.triton.attention import attention_kernels
from runtime.gpu.triton.kernel import TritonKernel
from runtime.program.strides import StridedView
from spmd.evaluator.evaluator import evaluate
from spmd.shape import ArrayShape, PrimitiveType
from spmd.text.parser import parse_module
from tests.runtime.gpu.triton.interpret import Interpreter


def dense_views(text: str) -> tuple[list[StridedView], list[StridedView]]:
    """Row-major layouts of the operands and results of the computation."""
    entry = parse_module(text).entry
    return tuple(  # type: ignore[return-value]
        [StridedView.dense(x.array_shape) for x in own]
        for own in (entry.parameters, entry.root.elements)
    )


def kernel_of(text: str, *, tf32: bool = True) -> TritonKernel:
    """The kernel of the computation on row-major arrays."""
    operands, results = dense_views(text)
    (kernel,) = attention_kernels(parse_module(text).entry, operands, results, tf32=tf32)
    return kernel


def run(
    interpreter: Interpreter,
    text: str,
    arrays: Sequence[np.ndarray],
    operands: Sequence[StridedView] | None = None,
) -> list[np.ndarray]:
    """Run the kernel of the computation on arrays that have the layouts ``operands``, by default row-major ones."""
    dense, results = dense_views(text)
    views = [*(operands or dense), *results]
    entry = parse_module(text).entry
    kernels = attention_kernels(entry, views[: len(dense)], results, tf32=False)
    return run_kernels(interpreter, kernels, arrays, views)


def run_kernels(
    interpreter: Interpreter,
    kernels: Sequence[TritonKernel],
    arrays: Sequence[np.ndarray],
    views: Sequence[StridedView],
) -> list[np.ndarray]:
    """Run ``kernels`` on ``arrays`` and results of these layouts, which are those of all parameters."""
    memories = [np.zeros(_extent(view), np.uint8) for view in views]
    placed = [_array(memory, view) for memory, view in zip(memories, views, strict=True)]
    for target, source in zip(placed, arrays, strict=False):
        target[...] = source
    for kernel in kernels:
        interpreter.run(kernel, memories, [view.offset for view in views])
    return placed[len(arrays) :]


def expected(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return evaluate(parse_module(text), *arrays)


def largest_error(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference of a result, relative to its largest element. Nan and infinities must agree."""
    worst = 0.0
    for one, other in zip(got, wanted, strict=True):
        a, b = (x.astype(np.float64) for x in (one, other))
        finite = np.isfinite(b)
        np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, b))
        if finite.any():
            scale = max(1e-30, float(np.abs(b[finite]).max()))
            worst = max(worst, float(np.abs(a[finite] - b[finite]).max()) / scale)
    return worst


def in_order(array: np.ndarray, order: tuple[int, ...], offset: int) -> StridedView:
    """A layout of ``array`` with gaps, in which dimension ``order[0]`` varies slowest."""
    kind = PrimitiveType.from_numpy(array.dtype)
    view = StridedView.dense_in_order(ArrayShape(kind, array.shape), order)
    return replace(view, offset=offset, strides=tuple(2 * stride for stride in view.strides))


def _extent(view: StridedView) -> int:
    last = sum((size - 1) * stride for size, stride in zip(view.dims, view.strides, strict=True))
    return view.offset + last + view.element_type.byte_size


def _array(memory: np.ndarray, view: StridedView) -> np.ndarray:
    return np.ndarray(view.dims, view.element_type.numpy, memory, view.offset, view.strides)
