"""Convolutions of inputs with base dilation: a convolution without base dilation for each phase of the result."""

from __future__ import annotations

import numpy as np

from runtime.cpu.kernels.convert import computed_in
from runtime.cpu.kernels.convolution.thin import ThinPart, convolving_thinly
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.convolution import (
    PanelConvolutionKernel,
    Phase,
    PhaseConvolutionKernel,
    UndividedConvolution,
    padded,
)
from spmd.literal import NDArray
from spmd.ops.window import Window


def is_unphased(kernel: PhaseConvolutionKernel) -> bool:
    """Return whether this processor computes all phases as one convolution, on its tile unit."""
    unphased = kernel.undivided
    tiled = isinstance(unphased, PanelConvolutionKernel) and unphased.tiles is not None
    return tiled and has_tile_unit()


@CPU_KERNELS.binds(PhaseConvolutionKernel)
def bind_phase_convolution(kernel: PhaseConvolutionKernel, arrays: KernelArrays) -> Action:
    """Bind the phases, which write disjoint parts of the result, and zeros for results without products.

    Arrays of other types are converted through scratch.
    """
    if is_unphased(kernel):
        return CPU_KERNELS.bind(kernel.undivided, arrays)
    packed = int(kernel.panel_elements > 0)
    scratch = arrays.scratch[0] if packed else None

    def convolve(x: NDArray, w: NDArray, out: NDArray) -> Action:
        zero = np.zeros((), out.dtype)
        zeros = (copying(zero, out[:, :, *part]) for part in kernel.zeros)
        return in_order(*zeros, *_phase_actions(kernel, x, w, out, scratch))

    return computed_in(kernel.element_type, arrays, arrays.scratch[packed:], convolve)


def _phase_actions(
    kernel: PhaseConvolutionKernel, x: NDArray, w: NDArray, out: NDArray, scratch: NDArray | None
) -> list[Action]:
    """Bind the phases. Those with few features are bound together, as one call."""
    actions: list[Action] = []
    parts: list[ThinPart] = []
    for phase in kernel.phases:
        own_w = w[:, *(axis.elements for axis in phase.axes)]
        own_out = out[:, :, *(axis.results for axis in phase.axes)]
        if phase.kernel is not None:
            actions.append(_phase_action(phase, phase.kernel, x, own_w, own_out, scratch))
            continue
        assert scratch is not None, "thin phases pack their parts of the kernel"
        packed, scratch = _taken(scratch, own_w, phase.w_order)
        actions.append(copying(own_w, packed))
        window = Window(tuple(axis.window for axis in phase.axes))
        parts.append(ThinPart(window, packed, own_out))
    return [*actions, convolving_thinly(x, parts)] if parts else actions


def _phase_action(
    phase: Phase,
    kernel: UndividedConvolution,
    x: NDArray,
    w: NDArray,
    out: NDArray,
    scratch: NDArray | None,
) -> Action:
    """Bind one phase, with copies of its parts of w and of the result to or from scratch if it asks for them."""
    if scratch is None:
        return CPU_KERNELS.bind(kernel, KernelArrays((x, w), (out,)))
    own_w, scratch = _taken(scratch, w, phase.w_order)
    own_out, scratch = _taken(scratch, out, phase.out_order)
    return in_order(
        *((copying(w, own_w),) if own_w is not w else ()),
        CPU_KERNELS.bind(kernel, KernelArrays((x, own_w), (own_out,), (scratch,))),
        *((copying(own_out, out),) if own_out is not out else ()),
    )


def _taken(
    scratch: NDArray, like: NDArray, order: tuple[int, ...] | None
) -> tuple[NDArray, NDArray]:
    """Return an array from ``scratch`` with the shape of ``like`` and the layout ``order``, and the remaining scratch.

    If ``order`` is None, the array is ``like`` itself.
    """
    if order is None:
        return like, scratch
    lying = scratch[: like.size].reshape([like.shape[d] for d in order])
    return lying.transpose(np.argsort(order)), scratch[padded(like.size) :]
