"""Products, convolutions, reductions, windows, statistics."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import (
    BatchNormAttrs,
    ConvolutionAttrs,
    DimensionsAttrs,
    DotAttrs,
    RaggedDotAttrs,
    WindowAttrs,
)
from spmd.ops.window import WindowDimension
from tests.differential.factors.table import (
    INDEXED,
    PASS,
    PERMUTATION,
    REDUCTION,
    WHOLE,
    Factors,
    arrays,
    everywhere,
    factor,
    rows,
)


# ---- products
@rows((PASS, REDUCTION), Opcode.DOT)
def _dot(instruction: HloInstruction) -> Factors:
    yield from _products(instruction, instruction.attrs_as(DotAttrs), ((), ()))


@rows((PASS, REDUCTION, INDEXED), Opcode.RAGGED_DOT)
def _ragged_dot(instruction: HloInstruction) -> Factors:
    """Group sizes say which row meets which group: both dimensions are taken by data."""
    attrs = instruction.attrs_as(RaggedDotAttrs)
    ragged, group = attrs.lhs_ragged_dims[0], attrs.rhs_group_dims[0]
    yield factor(INDEXED, {0: ragged}, {0: _result_of_free(attrs.dot, instruction, ragged)})
    yield factor(INDEXED, {1: group, 2: 0}, {})
    yield from _products(instruction, attrs.dot, ((ragged,), (group,)))


def _result_of_free(attrs: DotAttrs, dot: HloInstruction, dim: int) -> int:
    taken = (*attrs.lhs_batch, *attrs.lhs_contracting)
    free = [d for d in range(len(dot.operand(0).dims)) if d not in taken]
    return len(attrs.lhs_batch) + free.index(dim)


def _products(
    dot: HloInstruction, attrs: DotAttrs, special: tuple[tuple[int, ...], tuple[int, ...]]
) -> Factors:
    """``special``: dimensions of lhs and rhs that are something else; those of rhs are not in the result."""
    for position, (i, j) in enumerate(zip(attrs.lhs_batch, attrs.rhs_batch, strict=True)):
        yield factor(PASS, {0: i, 1: j}, {0: position})
    for i, j in zip(attrs.lhs_contracting, attrs.rhs_contracting, strict=True):
        yield factor(REDUCTION, {0: i, 1: j}, {})
    position = len(attrs.lhs_batch)
    for d in range(len(dot.operand(0).dims)):
        if d not in (*attrs.lhs_batch, *attrs.lhs_contracting):
            if d not in special[0]:
                yield factor(PASS, {0: d}, {0: position})
            position += 1
    for d in range(len(dot.operand(1).dims)):
        if d not in (*attrs.rhs_batch, *attrs.rhs_contracting, *special[1]):
            yield factor(PASS, {1: d}, {0: position})
            position += 1


@rows((PASS, REDUCTION, WHOLE), Opcode.SCALED_DOT)
def _scaled_dot(instruction: HloInstruction) -> Factors:
    yield from _products(instruction, instruction.attrs_as(DotAttrs), ((), ()))
    for operand in (2, 3):
        for d in range(instruction.operand(operand).array_shape.rank):
            yield factor(WHOLE, {operand: d}, {})


@rows((PASS, REDUCTION, PERMUTATION), Opcode.CONVOLUTION)
def _convolution(instruction: HloInstruction) -> Factors:
    """Batch and feature groups are parts of the dimensions that they divide, and pass."""
    attrs = instruction.attrs_as(ConvolutionAttrs)
    n = attrs.dimension_numbers
    groups = attrs.feature_group_count
    yield factor(PASS, {0: n.input_batch}, {0: n.output_batch})
    yield factor(PASS, {1: n.kernel_output_feature}, {0: n.output_feature})
    yield factor(REDUCTION, {1: n.kernel_input_feature}, {})
    yield factor(PASS if groups > 1 else REDUCTION, {0: n.input_feature}, {})
    for place, window in enumerate(attrs.window.dims):
        source, result = n.input_spatial[place], n.output_spatial[place]
        if _is_trivial(window):
            yield factor(PASS, {0: source}, {0: result})
        else:
            yield factor(PERMUTATION, {0: source}, {0: result})
            yield factor(REDUCTION, {1: n.kernel_spatial[place]}, {})


def _is_trivial(window: WindowDimension) -> bool:
    return (
        (window.size, window.stride, window.padding_low, window.padding_high, window.base_dilation)
    ) == (1, 1, 0, 0, 1)


# ---- reductions and windows
@rows((PASS, REDUCTION), Opcode.REDUCE)
def _reduce(instruction: HloInstruction) -> Factors:
    inputs = instruction.num_operands // 2
    reduced = instruction.attrs_as(DimensionsAttrs).dimensions
    position = 0
    for d in range(len(instruction.operand(0).dims)):
        if d in reduced:
            yield factor(REDUCTION, everywhere(inputs, d), {})
        else:
            yield factor(PASS, everywhere(inputs, d), everywhere(inputs, position))
            position += 1


@rows((PASS, PERMUTATION), Opcode.REDUCE_WINDOW)
def _reduce_window(instruction: HloInstruction) -> Factors:
    inputs = instruction.num_operands // 2
    for d, window in enumerate(instruction.attrs_as(WindowAttrs).window.dims):
        kind = PASS if _is_trivial(window) else PERMUTATION
        yield factor(kind, everywhere(inputs, d), everywhere(inputs, d))


@rows((PASS, PERMUTATION), Opcode.SELECT_AND_SCATTER)
def _select_and_scatter(instruction: HloInstruction) -> Factors:
    for d, window in enumerate(instruction.attrs_as(WindowAttrs).window.dims):
        yield factor(PASS if _is_trivial(window) else PERMUTATION, {0: d, 1: d}, {0: d})


@rows((PASS, REDUCTION), Opcode.BATCH_NORM_TRAINING, Opcode.BATCH_NORM_GRAD)
def _batch_norm(instruction: HloInstruction) -> Factors:
    """Statistics run over all dimensions but the feature's."""
    yield from _normalized(instruction, REDUCTION)


@rows((PASS,), Opcode.BATCH_NORM_INFERENCE)
def _batch_norm_inference(instruction: HloInstruction) -> Factors:
    yield from _normalized(instruction, PASS)


def _normalized(instruction: HloInstruction, kind: str) -> Factors:
    feature = instruction.attrs_as(BatchNormAttrs).feature_index
    operands = [o.array_shape for o in instruction.operands]
    results = arrays(instruction.shape)
    whole = operands[0].rank
    for d in range(whole):
        if d == feature:
            yield factor(
                PASS,
                {i: d if i == 0 or (i == 4 and s.rank > 1) else 0 for i, s in enumerate(operands)},
                {i: d if i == 0 else 0 for i in range(len(results))},
            )
        else:
            yield factor(kind, {i: d for i, s in enumerate(operands) if s.rank == whole}, {0: d})
