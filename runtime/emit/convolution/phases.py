"""Decomposition of a convolution with base dilation, or with few features, into phases, and their scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from runtime.emit.convolution.phase_geometry import window_phases
from runtime.program.convolution_matrices import CanonicalConvolution, slowest_first
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    Phase,
    PhaseAxis,
    PhaseConvolutionKernel,
    UndividedConvolution,
    padded,
)
from runtime.program.strides import StridedView
from spmd.ops.window import Window
from spmd.shape import ArrayShape

#: Largest number of phases and zero parts of the result. Each of them needs one to three native calls.
MOST_PHASES = 256
#: If the results of a phase, used in place, form matrices with fewer rows than this, they are computed in scratch,
#: where they form larger matrices, and copied.
LEAST_ROWS = 512

#: If the features take at most MOST_THIN_BYTES, less than a vector of VECTOR_BYTES, the lanes of vectors hold channels.
MOST_THIN_BYTES, VECTOR_BYTES = 60, 64
#: Fewest vectors of products for each sum over lanes, and fewest positions of a line, of such convolutions.
LEAST_THIN_VECTORS, LEAST_THIN_WIDTH = 8, 6


class Choose(Protocol):
    """Function that chooses the kernel of a convolution, or returns None if operands must be copied first.

    tiled: the kernel may have a plan for the tile unit.
    """

    def __call__(
        self, canonical: CanonicalConvolution, *, tiled: bool
    ) -> UndividedConvolution | None: ...


def in_phases(
    canonical: CanonicalConvolution, undivided: UndividedConvolution, choose: Choose
) -> PhaseConvolutionKernel | None:
    """Return the kernel that computes a convolution in phases, or None if there are more than MOST_PHASES.

    undivided: kernel of the entire convolution, which also multiplies the holes.
    """
    x, out = canonical.x, canonical.out
    found = window_phases(canonical.window, x.dims[2:-1], out.dims[2:-1])
    zeros = found.zeros()
    if len(found) + len(zeros) > MOST_PHASES:
        return None
    is_tiled = isinstance(undivided, PanelConvolutionKernel) and undivided.tiles is not None
    if is_thin(canonical, undivided):
        plans = [_thin_phase(canonical, axes) for axes in found]
    elif isinstance(undivided, GroupConvolutionKernel):
        plans = [(Phase(axes, replace(undivided, window=_window(axes))), 0) for axes in found]
    else:
        plans = [_phase(canonical, axes, choose, tiled=not is_tiled) for axes in found]
    thin = any(phase.kernel is None for phase, _ in plans)
    elements = (sum if thin else max)([count for _, count in plans] or [0])
    if isinstance(undivided, PanelConvolutionKernel):
        elements = max(elements, undivided.panel_elements if is_tiled else 0)
    return PhaseConvolutionKernel(
        x.element_type, undivided, tuple(phase for phase, _ in plans), zeros, elements
    )


def is_thin(canonical: CanonicalConvolution, undivided: UndividedConvolution) -> bool:
    """Return whether the lanes of vectors should hold channels of the input.

    They should if there are few features, many contiguous channels, wide lines of results, and many products for each
    sum over lanes.
    """
    x, out = canonical.x, canonical.out
    item = x.element_type.byte_size
    lanes = VECTOR_BYTES // item
    channels, features, width = x.dims[-1], out.dims[-1], ([1, *out.dims[2:-1]])[-1]
    vectors = -(-channels // lanes)
    step = canonical.window.dims[-1].base_dilation if canonical.window.dims else 1
    taps = math.prod(-(-dim.size // dim.base_dilation) for dim in canonical.window.dims)
    return (
        isinstance(undivided, PanelConvolutionKernel)
        and features * item <= MOST_THIN_BYTES
        and x.strides[-1] == item
        and 2 * channels >= vectors * lanes
        and taps * vectors >= LEAST_THIN_VECTORS
        and width // step >= LEAST_THIN_WIDTH
    )


def _thin_phase(canonical: CanonicalConvolution, axes: tuple[PhaseAxis, ...]) -> tuple[Phase, int]:
    """Return a phase with few features, and the scratch elements of its part of w, packed with contiguous channels."""
    *others, channels, features = range(len(canonical.w.dims))
    w = _part(canonical.w, 1, [axis.elements for axis in axes])
    return Phase(axes, None, (*others, features, channels)), padded(w.num_elements)


def _phase(
    canonical: CanonicalConvolution, axes: tuple[PhaseAxis, ...], choose: Choose, *, tiled: bool
) -> tuple[Phase, int]:
    """Return a phase and the number of scratch elements that it needs.

    Its parts of w and of the result are packed in scratch if they form no matrices, or too small ones, in place.
    """
    part = CanonicalConvolution(
        _window(axes),
        canonical.x,
        _part(canonical.w, 1, [axis.elements for axis in axes]),
        _part(canonical.out, 2, [axis.results for axis in axes]),
    )
    w_order = out_order = None
    w, out = part.w, part.out
    if part.depth() is None:
        w_order = slowest_first(canonical.w, range(len(w.dims)))
        w = _gathered(w, w_order)
    order = slowest_first(canonical.out, range(len(out.dims)))
    gathered = CanonicalConvolution(part.window, part.x, w, _gathered(out, order))
    kernel = None
    if part.rows():
        kernel = choose(CanonicalConvolution(part.window, part.x, w, out), tiled=tiled)
    anywhere = isinstance(kernel, PanelConvolutionKernel) and kernel.vectors is not None
    if not anywhere and (not part.rows() or _rows(part) < min(LEAST_ROWS, _rows(gathered))):
        out_order, out = order, gathered.out
        kernel = choose(gathered, tiled=tiled)
    assert isinstance(kernel, PanelConvolutionKernel), (
        "scratch has the layout of the undivided array"
    )
    taken = [
        padded(view.num_elements)
        for view, own in ((w, w_order), (out, out_order))
        if own is not None
    ]
    return Phase(axes, kernel, w_order, out_order), sum(taken) + kernel.panel_elements


def _window(axes: tuple[PhaseAxis, ...]) -> Window:
    """Return the window of a phase."""
    return Window(tuple(axis.window for axis in axes))


def _rows(canonical: CanonicalConvolution) -> int:
    """Return the number of rows of one matrix of the result."""
    return math.prod(canonical.out.dims[d] for d in canonical.rows())


def _part(view: StridedView, first: int, parts: Sequence[slice]) -> StridedView:
    """Return the part of ``view`` at the indices ``parts`` of the dimensions from ``first`` on."""
    last = len(view.dims) - first - len(parts)
    slices = (*[slice(None)] * first, *parts, *[slice(None)] * last)
    spans = [part.indices(size) for part, size in zip(slices, view.dims, strict=True)]
    starts, limits, steps = zip(*spans, strict=True)
    return view.slice(starts, limits, steps)


def _gathered(view: StridedView, order: tuple[int, ...]) -> StridedView:
    """Return the dense view to which ``view`` is packed in scratch."""
    return StridedView.dense_in_order(ArrayShape(view.element_type, view.dims), order)
