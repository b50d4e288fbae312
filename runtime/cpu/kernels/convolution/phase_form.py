"""Convolutions of inputs with holes, one without holes for each phase of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.convolution.grouped_form import GroupConvolutionKernel
from runtime.cpu.kernels.convolution.panel_form import PanelConvolutionKernel
from runtime.cpu.kernels.convolution.phase_geometry import PhaseAxis
from runtime.cpu.kernels.convolution.thin_form import ThinPart, convolving_thinly
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import in_order
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from spmd.literal import NDArray
from spmd.ops.window import Window
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class Phase:
    """Phase: the elements of the kernel w and of the result that ``axes`` name along the spatial dimensions.

    w_order, out_order: dimensions of these parts, the slowest first, where they lie in scratch without gaps meanwhile;
    None where they are used as they lie. kernel: None where there are few features (``thin_convolution.py``).
    """

    axes: tuple[PhaseAxis, ...]
    kernel: PanelConvolutionKernel | GroupConvolutionKernel | None
    w_order: tuple[int, ...] | None = None
    out_order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PhaseConvolutionKernel(Kernel):
    """Operands x[g, n, spatial.., c] and w[g, window.., c, f], result[g, n, out.., f], as ``whole`` has them.

    The tile unit, where there is one and ``whole`` says how, does it as a whole. Else the phases do it, which multiply
    no holes; the results that no phase has, ``zeros``, meet nothing. Scratch: ``panel_elements``, if any, and then
    arrays of another type than ``element_type``, converted.
    """

    element_type: PrimitiveType
    whole: PanelConvolutionKernel | GroupConvolutionKernel
    phases: tuple[Phase, ...]
    zeros: tuple[tuple[slice, ...], ...]
    panel_elements: int = 0

    @property
    def is_thin(self) -> bool:
        """Vectors hold channels of the input: there are few features."""
        return any(phase.kernel is None for phase in self.phases)

    @property
    def is_whole(self) -> bool:
        """On this processor."""
        whole = self.whole
        tiled = isinstance(whole, PanelConvolutionKernel) and whole.tiles is not None
        return tiled and has_tile_unit()


@CPU_KERNELS.binds(PhaseConvolutionKernel)
def bind_phase_convolution(kernel: PhaseConvolutionKernel, arrays: KernelArrays) -> Action:
    if kernel.is_whole:
        return CPU_KERNELS.bind(kernel.whole, arrays)
    spare = list(arrays.scratch)
    scratch = spare.pop(0) if kernel.panel_elements else None
    given = (*arrays.operands, *arrays.results)
    x, w, out = [
        array if array.dtype == kernel.element_type.numpy else spare.pop(0) for array in given
    ]
    zero = np.zeros((), out.dtype)
    return in_order(
        *(
            converting(array, own)
            for own, array in zip((x, w), arrays.operands, strict=True)
            if own is not array
        ),
        *(copying(zero, out[:, :, *part]) for part in kernel.zeros),
        *_phase_actions(kernel, x, w, out, scratch),
        *((converting(out, arrays.results[0]),) if out is not arrays.results[0] else ()),
    )


def _phase_actions(
    kernel: PhaseConvolutionKernel, x: NDArray, w: NDArray, out: NDArray, scratch: NDArray | None
) -> list[Action]:
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
    kernel: PanelConvolutionKernel | GroupConvolutionKernel,
    x: NDArray,
    w: NDArray,
    out: NDArray,
    scratch: NDArray | None,
) -> Action:
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
    """An array of the size of ``like`` that lies in ``order`` at the beginning of ``scratch``, and what is left.

    Where there is no order, it is ``like`` itself.
    """
    if order is None:
        return like, scratch
    lying = scratch[: like.size].reshape([like.shape[d] for d in order])
    return lying.transpose(np.argsort(order)), scratch[padded(like.size) :]


def padded(elements: int) -> int:
    """Elements of scratch for an array of so many: what follows begins a line of cache."""
    return -(-elements // 64) * 64
