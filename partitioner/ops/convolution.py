"""Convolutions: batch and features as in a matrix product; the long spatial dimensions are windowed.

    forward          in [b, s, i], kernel [T, i, o]                -> [b, s, o]      i: SUM, s sharded with halos
    feature groups   in [b, s, g*i], kernel [T, i, g*o]            -> [b, s, g*o]    g passes, i: SUM
    batch groups     in [g*b, s, i], kernel [T, i, g*o]            -> [b, s, g*o]    g passes
    filter gradient  in [i, s, b], gradient [s, b, o] (features)   -> [i, T, o]      b, s: SUM, s with halos

The filter gradient is the forward convolution with batch instead of input features, so data parallelism leaves it
partial without a rule of its own.
"""

from __future__ import annotations

from partitioner.ops.reduce import is_trivial
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs


@sharding_rule(Opcode.CONVOLUTION)
def spatial_rule(convolution: HloInstruction, *, windowed: bool = True) -> OpShardingRule:
    """Return the rule of the spatial dimensions. Groups are major parts of the dimensions they divide; a spatial
    dimension with a 1-wide window passes.

    If ``windowed``, other spatial dimensions have a factor too, for which the per-device clone needs halos.
    """
    attrs = convolution.attrs_as(ConvolutionAttrs)
    dims = attrs.dimension_numbers
    lhs, rhs, out = convolution.operand(0).dims, convolution.operand(1).dims, convolution.dims
    rule = RuleBuilder.for_instruction(convolution)
    if attrs.feature_group_count > 1:
        rule.factor(
            attrs.feature_group_count,
            {0: dims.input_feature, 1: dims.kernel_output_feature},
            {0: dims.output_feature},
        )
    if attrs.batch_group_count > 1:
        rule.factor(
            attrs.batch_group_count,
            {0: dims.input_batch, 1: dims.kernel_output_feature},
            {0: dims.output_feature},
        )
    groups = attrs.feature_group_count * attrs.batch_group_count
    rule.factor(out[dims.output_batch], {0: dims.input_batch}, {0: dims.output_batch})
    rule.factor(
        out[dims.output_feature] // groups,
        {1: dims.kernel_output_feature},
        {0: dims.output_feature},
    )
    rule.factor(
        rhs[dims.kernel_input_feature],
        {0: dims.input_feature, 1: dims.kernel_input_feature},
        reduction=ReductionKind.SUM,
    )
    for position, window in enumerate(attrs.window.dims):
        source, result = dims.input_spatial[position], dims.output_spatial[position]
        size = min(lhs[source], out[result])
        if is_trivial(window):
            rule.factor(size, {0: source}, {0: result})
        elif windowed and contracts(convolution, position):
            kernel = dims.kernel_spatial[position]
            size = min(lhs[source], rhs[kernel])
            shared = {0: source, 1: kernel}
            rule.factor(size, shared, reduction=ReductionKind.SUM, windowed=True)
        elif windowed:
            rule.factor(size, {0: source}, {0: result}, windowed=True)
    return rule.build()


def contracts(convolution: HloInstruction, position: int) -> bool:
    """Return whether the kernel spans more of the image than its positions do: a filter gradient, summed over a spatial
    dimension.
    """
    attrs = convolution.attrs_as(ConvolutionAttrs)
    window = attrs.window.dims[position]
    result = convolution.dims[attrs.dimension_numbers.output_spatial[position]]
    positions = (result - 1) * window.stride + 1
    return window.dilated_size > positions and window.base_dilation == 1 and not window.reversal


def local_group_counts(
    numbers: ConvDimensionNumbers,
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    out: tuple[int, ...],
) -> tuple[int, int]:
    """Return the (feature groups, batch groups) of local sizes of input, kernel and output; 1 for empty arrays.

    Each device has the groups that make up its part of the features (or of the batch).
    """
    features, batch = rhs[numbers.kernel_input_feature], out[numbers.output_batch]
    return (
        lhs[numbers.input_feature] // features if features else 1,
        lhs[numbers.input_batch] // batch if batch else 1,
    )
