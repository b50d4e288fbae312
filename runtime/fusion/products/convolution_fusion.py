"""Convolution fusions: a convolution and its epilogue, which a GPU's library computes in the same call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.products.product_fusion import product_in, require_same_indices
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import has_reductions
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConvolutionAttrs


@dataclass(frozen=True, slots=True)
class ConvolutionFusion:
    """Plan of a convolution fusion. ``epilogue`` reads the convolution as its last input, at its own index.

    operands: numbers of the inputs that are the image and the filter. ``overwrites`` is empty: the library may write a
    result before it reads all inputs.
    """

    operands: tuple[int, int]
    epilogue: LoopFusion
    overwrites: tuple[tuple[int, int], ...] = ()


def convolution_fusion(
    convolution: HloInstruction,
    roots: Sequence[HloInstruction],
    inputs: Mapping[HloInstruction, int],
) -> ConvolutionFusion:
    """Plan one kernel for ``roots``, which are computed from ``convolution``.

    Raises NoEmitterError, with the reason, if there is no such kernel.
    """
    if convolution in roots:
        raise NoEmitterError(f"{convolution.name} is read by others, or nothing is computed of it")
    if any(x not in inputs for x in convolution.operands):
        raise NoEmitterError(f"an operand of {convolution.name} is computed in the same kernel")
    number = max(inputs.values()) + 1
    within = {**inputs, convolution: number}
    if has_reductions(roots, within) or product_in(roots, within) is not None:
        raise NoEmitterError("a kernel makes one convolution, and reduces nothing")
    epilogue = loop_fusion(roots, within)
    require_same_indices(epilogue, number, convolution)
    image, kernel = (inputs[x] for x in convolution.operands)
    return ConvolutionFusion((image, kernel), epilogue)


def is_forward(convolution: HloInstruction) -> bool:
    """Return whether ``convolution`` is one of images whose features vary fastest, as its result's do.

    The gradients of strided convolutions, which have a base dilation, and gradients of filters, whose image has the
    batch as features, are none. Neither are convolutions with groups.
    """
    attrs = convolution.attrs_as(ConvolutionAttrs)
    dims, last = attrs.dimension_numbers, len(convolution.dims) - 1
    return (
        not attrs.window.has_holes
        and attrs.feature_group_count == attrs.batch_group_count == 1
        and (dims.input_batch, dims.input_feature) == (0, last)
        and (dims.output_batch, dims.output_feature) == (0, last)
    )
