"""Convolution fusions: a convolution and its epilogue, which a GPU's library computes in the same call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.products.product_fusion import product_in, require_same_indices
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import has_reductions
from spmd.analysis.library_convolutions import requires_row_major, reverses_filter
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
    """Return whether ``convolution`` is one that a GPU's library computes forwards.

    It is not the gradient of an image, nor that of a filter, whose first operand has its features first.
    """
    attrs = convolution.attrs_as(ConvolutionAttrs)
    return (
        requires_row_major(convolution)
        and attrs.dimension_numbers.input_batch == 0
        and not attrs.window.has_holes
        and not reverses_filter(attrs.window)
    )
