"""A convolution's operands and result in the order of its kernels, and which dimensions make matrices for BLAS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.program.dot_matrices import is_for_blas
from runtime.program.strides import StridedView
from spmd.ops.window import Window


@dataclass(frozen=True)
class CanonicalConvolution:
    """x[g, n, spatial.., c], w[g, window.., c, f] and out[g, n, out.., f]; g counts feature or batch groups.

    Where w lies backwards along a window's dimension, it is read forwards, and the window goes the other way.
    """

    window: Window
    x: StridedView
    w: StridedView
    out: StridedView

    def rows(self) -> tuple[int, ...]:
        """The result's dimensions that lie evenly spaced, with its columns in BLAS's order: as many as possible.

        Spatial dimensions of size 1 stand first: runs may then go along the batch.
        """
        order = slowest_first(self.out, range(1, len(self.out.dims) - 1))
        order = tuple(sorted(order, key=lambda d: d == 1 or self.out.dims[d] > 1))
        while not is_for_blas(_as_matrix(self.out, order)):
            order = order[1:]
        return order

    def depth(self) -> tuple[int, ...] | None:
        """The dimensions of w that become one; None where they lie otherwise."""
        order = slowest_first(self.w, range(1, len(self.w.dims) - 1))
        return order if is_for_blas(_as_matrix(self.w, order)) else None


def slowest_first(view: StridedView, dimensions: range) -> tuple[int, ...]:
    """Dimensions of size 1 lie anywhere: they stand as they would in a dense array."""
    strides = {}
    step = view.element_type.byte_size
    for d in reversed(dimensions):
        if view.dims[d] > 1:
            step = abs(view.strides[d])
        strides[d] = step
    return tuple(sorted(dimensions, key=lambda d: -strides[d]))


def _as_matrix(view: StridedView, rows: tuple[int, ...]) -> StridedView | None:
    """[rows, last dimension] of the first index of all others, or None where no strides say it."""
    last = len(view.dims) - 1
    order = (*rows, last)
    part = StridedView(
        view.element_type,
        tuple(view.dims[d] for d in order),
        tuple(view.strides[d] for d in order),
        view.offset,
    )
    return part.reshape((math.prod(part.dims[:-1]), part.dims[-1]))
