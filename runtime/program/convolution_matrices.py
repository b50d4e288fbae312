"""Operands and result of a convolution in canonical dimension order, and the dimensions that form matrices for BLAS."""

from __future__ import annotations

import math

from runtime.program.dot_matrices import is_for_blas
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window


@dataclass(frozen=True)
class CanonicalConvolution:
    """Convolution out[g, n, out.., f] of x[g, n, spatial.., c] and w[g, window.., c, f].

    g counts groups, n images, c input features and f output features. Along window dimensions w has no negative
    strides: a reversed w is viewed forwards, and the reversal of the window is flipped.
    """

    window: Window
    x: StridedView
    w: StridedView
    out: StridedView

    def rows(self) -> tuple[int, ...]:
        """Return the longest list of dimensions of the result that form the rows of one BLAS matrix, slowest first.

        Spatial dimensions of size 1 are the first ones of the list, so that runs may continue along the batch.
        """
        order = slowest_first(self.out, range(1, len(self.out.dims) - 1))
        order = tuple(sorted(order, key=lambda d: d == 1 or self.out.dims[d] > 1))
        while not is_for_blas(_as_matrix(self.out, order)):
            order = order[1:]
        return order

    def depth(self) -> tuple[int, ...] | None:
        """Return the dimensions of w that form the depth (k) of one BLAS matrix, slowest first.

        Returns None if no such matrix can be described by strides.
        """
        order = slowest_first(self.w, range(1, len(self.w.dims) - 1))
        return order if is_for_blas(_as_matrix(self.w, order)) else None


def slowest_first(view: StridedView, dimensions: range) -> tuple[int, ...]:
    """Return ``dimensions`` sorted by stride, largest first.

    A dimension of size 1 counts with the stride of the next dimension that is larger than 1, so it keeps its place.
    """
    strides = {}
    step = view.element_type.byte_size
    for d in reversed(dimensions):
        if view.dims[d] > 1:
            step = abs(view.strides[d])
        strides[d] = step
    return tuple(sorted(dimensions, key=lambda d: -strides[d]))


def _as_matrix(view: StridedView, rows: tuple[int, ...]) -> StridedView | None:
    """Return the matrix [rows, last dimension] of ``view`` at index 0 of all other dimensions.

    Returns None if the dimensions ``rows`` cannot be merged into one by strides.
    """
    last = len(view.dims) - 1
    order = (*rows, last)
    part = StridedView(
        view.element_type,
        tuple(view.dims[d] for d in order),
        tuple(view.strides[d] for d in order),
        view.offset,
    )
    return part.reshape((math.prod(part.dims[:-1]), part.dims[-1]))
