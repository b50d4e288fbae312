"""Operands and result of a convolution in the order of its kernels, and the dimensions that form matrices for BLAS."""

from __future__ import annotations

import math

from runtime.program.dot_matrices import is_for_blas
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window


@dataclass(frozen=True)
class CanonicalConvolution:
    """Convolution of x[g, n, spatial.., c] and w[g, window.., c, f] to out[g, n, out.., f]; g counts groups.

    If w is stored backwards along a dimension of the window, it is read forwards, and the window is reversed.
    """

    window: Window
    x: StridedView
    w: StridedView
    out: StridedView

    def rows(self) -> tuple[int, ...]:
        """Return the most dimensions of the result that form the rows of one matrix for BLAS, slowest first.

        Spatial dimensions of size 1 come first, so that runs may continue along the batch.
        """
        order = slowest_first(self.out, range(1, len(self.out.dims) - 1))
        order = tuple(sorted(order, key=lambda d: d == 1 or self.out.dims[d] > 1))
        while not is_for_blas(_as_matrix(self.out, order)):
            order = order[1:]
        return order

    def depth(self) -> tuple[int, ...] | None:
        """Return the dimensions of w that form the depth of one matrix; None if no strides describe it."""
        order = slowest_first(self.w, range(1, len(self.w.dims) - 1))
        return order if is_for_blas(_as_matrix(self.w, order)) else None


def slowest_first(view: StridedView, dimensions: range) -> tuple[int, ...]:
    """Sort ``dimensions`` by stride, largest first. Those of size 1 are placed as in a dense array."""
    strides = {}
    step = view.element_type.byte_size
    for d in reversed(dimensions):
        if view.dims[d] > 1:
            step = abs(view.strides[d])
        strides[d] = step
    return tuple(sorted(dimensions, key=lambda d: -strides[d]))


def _as_matrix(view: StridedView, rows: tuple[int, ...]) -> StridedView | None:
    """Return the view [rows, last dimension] at index 0 of all others; None if no strides describe it."""
    last = len(view.dims) - 1
    order = (*rows, last)
    part = StridedView(
        view.element_type,
        tuple(view.dims[d] for d in order),
        tuple(view.strides[d] for d in order),
        view.offset,
    )
    return part.reshape((math.prod(part.dims[:-1]), part.dims[-1]))
