"""Write convolutions with the dimension orders of a GPU's library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from runtime.layout.transposed_sums import sum_before_transposing
from spmd.analysis.library_convolutions import (
    require_row_major,
    requires_row_major,
    reverses_filter,
)
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConvolutionAttrs, DimensionsAttrs
from spmd.ops.window import Window
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, put_in_place
from spmd.shape import PrimitiveType

#: Element types, one for all three arrays, of the convolutions that the library computes without conversions, and the
#: most spatial dimensions.
_TYPES = {PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32, PrimitiveType.F64}
_MOST_SPATIAL = 3


@register_pass
@dataclass(frozen=True)
class ConvolutionCanonicalization(InstructionPass):
    """Write convolutions of images with features last so that cuDNN reads and writes all arrays in place.

        y = f32[2,8,8,5] convolution(x, w), dim_labels=b01f_01io->b01f
              =>  f = f32[5,3,3,4] transpose(w), dimensions={3,0,1,2}
                  y = f32[2,8,8,5] convolution(x, f), dim_labels=b01f_o01i->b01f
        r = f32[3,3,4,5] reverse(w), dimensions={0,1}
        g = f32[2,8,8,4] convolution(dy, r), dim_labels=b01f_01oi->b01f
              =>  f = f32[5,3,3,4] transpose(w), dimensions={3,0,1,2}
                  g = f32[2,8,8,4] convolution(dy, f), window={.. rhs_reversal=1x1}, dim_labels=b01f_i01o->b01f
        d = f32[3,3,4,5] convolution(x, dy), dim_labels=f01b_i01o->01bf
              =>  f = f32[5,3,3,4] convolution(x, dy), dim_labels=f01b_i01o->f01b
                  d = f32[3,3,4,5] transpose(f), dimensions={1,2,3,0}

    The back end config of such convolutions states that their operands have to be row-major. An operand that is not,
    such as the transpose of a parameter, is copied first; the copy is a kernel that may share a launch with others.
    All-reduces sum gradients of filters before they are transposed. Convolutions with groups do not change.
    """

    name: ClassVar[str] = "convolution-canonicalization"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED,)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.CONVOLUTION, Opcode.ALL_REDUCE)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            if x.opcode is Opcode.ALL_REDUCE:
                return sum_before_transposing(x, builder_at(x, scope))
            if not _is_for_library(x) or requires_row_major(x):
                return False
            b = builder_at(x, scope)
            made = _filter_gradient(x, b) or _of_images(x, b)
            if made is not None:
                put_in_place(x, made)
            return made is not None

        return edit


def _is_for_library(x: HloInstruction) -> bool:
    """Return whether the library computes ``x`` without conversions of types."""
    attrs = x.attrs_as(ConvolutionAttrs)
    shapes = [y.array_shape for y in (x, *x.operands)]
    return (
        len({shape.element_type for shape in shapes}) == 1
        and x.array_shape.element_type in _TYPES
        and attrs.feature_group_count == attrs.batch_group_count == 1
        and attrs.window.rank <= _MOST_SPATIAL
        and all(shape.num_elements for shape in shapes)
    )


def _filter_gradient(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Return the gradient of a filter ``x`` written as [o, spatial.., i], or None if ``x`` is none.

    Its window, the result of the forward convolution, is larger than its result.
    """
    attrs = x.attrs_as(ConvolutionAttrs)
    dims, last = attrs.dimension_numbers, len(x.dims) - 1
    if (
        (dims.input_feature, dims.input_batch) != (0, last)
        or (dims.kernel_input_feature, dims.kernel_output_feature) != (0, last)
        or math.prod(dim.size for dim in attrs.window.dims)
        <= math.prod(x.dims[d] for d in dims.output_spatial)
    ):
        return None
    order = (dims.output_feature, *dims.output_spatial, dims.output_batch)
    numbers = replace(
        dims, output_feature=0, output_spatial=tuple(range(1, last)), output_batch=last
    )
    made = _convolution(replace(attrs, dimension_numbers=numbers), x, x.operands, b)
    return b.transpose_by(made, tuple(order.index(d) for d in range(len(order))))


def _of_images(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Return ``x`` with its filter as the library takes it, or None if features are not last in its images.

    That is [k, spatial.., c], with k the features of the forward convolution: of the result of ``x``, or of its operand
    if ``x`` is the gradient of the image.
    """
    attrs = x.attrs_as(ConvolutionAttrs)
    dims, last = attrs.dimension_numbers, len(x.dims) - 1
    if (dims.input_batch, dims.input_feature) != (0, last):
        return None
    if (dims.output_batch, dims.output_feature) != (0, last):
        return None
    window, filter_ = _without_reverse(x)
    spatial, k, c = tuple(range(1, last)), dims.kernel_output_feature, dims.kernel_input_feature
    o, i = 0, last
    if window.has_holes or reverses_filter(window):
        k, c, o, i = c, k, last, 0
    in_order = b.transpose_by(filter_, (k, *dims.kernel_spatial, c))
    numbers = replace(dims, kernel_spatial=spatial, kernel_output_feature=o, kernel_input_feature=i)
    attrs = replace(attrs, window=window, dimension_numbers=numbers)
    return _convolution(attrs, x, (x.operand(0), in_order), b)


def _without_reverse(x: HloInstruction) -> tuple[Window, HloInstruction]:
    """Return the window and the filter of ``x``, with the reversal of the filter, if it is one, in the window."""
    attrs, filter_ = x.attrs_as(ConvolutionAttrs), x.operand(1)
    spatial = attrs.dimension_numbers.kernel_spatial
    if filter_.opcode is not Opcode.REVERSE:
        return attrs.window, filter_
    backwards = filter_.attrs_as(DimensionsAttrs).dimensions
    if not set(backwards) <= set(spatial):
        return attrs.window, filter_
    window = tuple(
        replace(dim, reversal=dim.reversal is not (d in backwards))
        for dim, d in zip(attrs.window.dims, spatial, strict=True)
    )
    return Window(window), filter_.operand(0)


def _convolution(
    attrs: ConvolutionAttrs, x: HloInstruction, operands: Sequence[HloInstruction], b: Builder
) -> HloInstruction:
    """Return the convolution with ``attrs``, named after ``x``, whose operands have to be row-major."""
    made = b.create(Opcode.CONVOLUTION, operands, attrs, name=x.name)
    require_row_major(made)
    return made
