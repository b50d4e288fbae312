"""Division of convolutions along output features, along images, or along groups that are contiguous in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.kernels.convolution.panels import plan_here
from runtime.cpu.kernels.convolution.phases import is_unphased
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.libraries.blas import cut_multiples
from runtime.cpu.sharing.pieces import CUTS, CUTS_IN_TURN, Piece, scratch_like, spans
from runtime.program.kernel import KernelArrays
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    LeftLayout,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
    VectorPlan,
)
from spmd.shape import PrimitiveType

#: The number of features of a piece is a multiple of this: full tiles, and full vectors of BLAS's kernels.
FEATURES = 32
#: The number of groups of a piece is a multiple of this: full cache lines.
GROUPS = 16


@CUTS.register(PanelConvolutionKernel)
def cut_panel_convolution(
    kernel: PanelConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along output features or, if the plan is for vector registers and that gives more pieces, along images."""
    by_features = _by_features(kernel, kernel, arrays, count)
    plan = plan_here(kernel)
    if len(by_features) == count or not isinstance(plan, VectorPlan):
        return by_features
    images = plan.micro_kernel.lanes if plan.left is LeftLayout.DEPTH else 1
    return max(by_features, _by_images(kernel, arrays, count, images), key=len)


def _by_features(
    kernel: PanelConvolutionKernel | PhaseConvolutionKernel,
    full: PanelConvolutionKernel,
    arrays: KernelArrays,
    count: int,
) -> Sequence[Piece]:
    """Cut along output features. Each piece packs all of x by itself.

    full: ``kernel`` itself or, if that is a convolution in phases, its undivided convolution. Returns no pieces if
    arrays are converted through scratch, or if a cut could change the bits of the result.
    """
    x, w = arrays.operands
    (out,) = arrays.results
    (panel, *converted) = arrays.scratch
    # The size of an f32 panel decides whether BLAS or the tile unit multiplies it, and these round sums differently.
    by_size = kernel.element_type is PrimitiveType.F32 and full.tiles is None and has_tile_unit()
    multiple = FEATURES
    if plan_here(full) is None:  # BLAS multiplies panels, whose results have features fastest
        multiple = math.lcm(FEATURES, cut_multiples(kernel.element_type).fast)
    if converted or by_size or not multiple:
        return ()
    last = out.ndim - 1
    return [
        (
            kernel,
            KernelArrays((x, span.of(w, last)), (span.of(out, last),), scratch_like([panel])),
        )
        for span in spans(out.shape[last], count, multiple)
    ]


@CUTS.register(PhaseConvolutionKernel)
def cut_phase_convolution(
    kernel: PhaseConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along groups if these are contiguous, along images if there are few features, else along output features."""
    if isinstance(kernel.undivided, GroupConvolutionKernel):
        return _by_groups(kernel, arrays, count)
    if kernel.is_thin and not is_unphased(kernel):
        return _by_images(kernel, arrays, count)
    return _by_features(kernel, kernel.undivided, arrays, count) if kernel.panel_elements else ()


@CUTS_IN_TURN.register(PanelConvolutionKernel)
def keep_panel_convolution(
    kernel: PanelConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Return no pieces, because one thread would pack the input again for each piece."""
    return ()


@CUTS_IN_TURN.register(PhaseConvolutionKernel)
def keep_phase_convolution(
    kernel: PhaseConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along groups or images, whose pieces read disjoint parts of x.

    Returns no pieces if the cut would be along features, or if the tile unit computes the undivided convolution.
    """
    by_features = isinstance(kernel.undivided, PanelConvolutionKernel) and not kernel.is_thin
    return (
        () if by_features or is_unphased(kernel) else cut_phase_convolution(kernel, arrays, count)
    )


def _by_images(
    kernel: PanelConvolutionKernel | PhaseConvolutionKernel,
    arrays: KernelArrays,
    count: int,
    multiple: int = 1,
) -> Sequence[Piece]:
    """Cut along images, at multiples of ``multiple`` images. Each piece packs w by itself.

    Returns no pieces if arrays are converted through scratch.
    """
    x, w = arrays.operands
    (out,) = arrays.results
    (packed, *converted) = arrays.scratch
    if converted:
        return ()
    return [
        (
            kernel,
            KernelArrays((span.of(x, 1), w), (span.of(out, 1),), scratch_like([packed])),
        )
        for span in spans(out.shape[1], count, multiple)
    ]


@CUTS.register(GroupConvolutionKernel)
def cut_group_convolution(
    kernel: GroupConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along groups."""
    return _by_groups(kernel, arrays, count)


def _by_groups(
    kernel: GroupConvolutionKernel | PhaseConvolutionKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along groups, at multiples of ``GROUPS``. Returns no pieces if the kernel has scratch."""
    (out,) = arrays.results
    if arrays.scratch:  # the scratch is for arrays that are converted as a whole
        return ()
    return [
        (
            kernel,
            replace(
                arrays,
                operands=tuple(span.of(array, 0) for array in arrays.operands),
                results=(span.of(out, 0),),
            ),
        )
        for span in spans(out.shape[0], count, GROUPS)
    ]
