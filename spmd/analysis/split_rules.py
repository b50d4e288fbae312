"""Rules by opcode: the dimensions along which an operation can be computed in pieces, and the parts each piece reads.

    dot(x[b,m,k], y[b,k,n]) over k:   b   piece of x, piece of y -> piece of the result
                                      m   piece of x, all of y   -> piece of the result
                                      k   piece of x, piece of y -> all of the result, one term of a sum

Pieces are equal parts, so a part of a dimension stays that part if a reshape merges it with smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import Literal
from spmd.ops import definition
from spmd.ops.attrs import (
    ConstantAttrs,
    ConvolutionAttrs,
    DimensionsAttrs,
    DotAttrs,
    IotaAttrs,
    PadAttrs,
    SliceAttrs,
    SortAttrs,
)
from spmd.ops.reduction import OPERATION, identity_value, reduction_kind
from spmd.registry import Registry
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True, slots=True)
class Along:
    """One way to split: the result's dimension, and each operand's (None: read entirely).

    If result is None, each piece has the shape of the result, and ``combine`` joins them, an elementwise operation of
    two operands.
    """

    result: int | None
    operands: tuple[int | None, ...]
    combine: Opcode | None = None


SplitRule: TypeAlias = Callable[[HloInstruction], Iterator[Along]]

SPLIT_RULES: Registry[Opcode, SplitRule] = Registry("split rule")


def ways_to_split(instruction: HloInstruction) -> tuple[Along, ...]:
    """Return the ways to split; empty for side effects, collectives, loops, and results that are no arrays."""
    shapes = (instruction.shape, *(operand.shape for operand in instruction.operands))
    if not all(isinstance(shape, ArrayShape) and not any(shape.dynamic) for shape in shapes):
        return ()
    if instruction.control_predecessors or instruction.control_successors:
        return ()
    rule = SPLIT_RULES.get(instruction.opcode)
    if rule is None and definition(instruction.opcode).elementwise and instruction.operands:
        rule = _elementwise
    return tuple(rule(instruction)) if rule is not None else ()


def length_along(instruction: HloInstruction, along: Along) -> int:
    """Return the number of elements of the split dimension."""
    if along.result is not None:
        return instruction.dims[along.result]
    pairs = zip(instruction.operands, along.operands, strict=True)
    return next(operand.dims[dim] for operand, dim in pairs if dim is not None)


def _elementwise(x: HloInstruction) -> Iterator[Along]:
    """Yield the ways to split an elementwise op. Scalar operands of select and clamp are read entirely."""
    ranks = [len(operand.dims) for operand in x.operands]
    for dim in range(len(x.dims)):
        yield Along(dim, tuple(dim if rank else None for rank in ranks))


@SPLIT_RULES.register(Opcode.COPY)
def _copy(x: HloInstruction) -> Iterator[Along]:
    yield from _elementwise(x)


@SPLIT_RULES.register(Opcode.BROADCAST)
def _broadcast(x: HloInstruction) -> Iterator[Along]:
    source = {to: of for of, to in enumerate(x.attrs_as(DimensionsAttrs).dimensions)}
    for dim in range(len(x.dims)):
        yield Along(dim, (source.get(dim),))


@SPLIT_RULES.register(Opcode.IOTA)
def _iota(x: HloInstruction) -> Iterator[Along]:
    for dim in range(len(x.dims)):
        if dim != x.attrs_as(IotaAttrs).dimension:
            yield Along(dim, ())


@SPLIT_RULES.register(Opcode.TRANSPOSE)
def _transpose(x: HloInstruction) -> Iterator[Along]:
    for dim, source in enumerate(x.attrs_as(DimensionsAttrs).dimensions):
        yield Along(dim, (source,))


@SPLIT_RULES.register(Opcode.REVERSE)
def _reverse(x: HloInstruction) -> Iterator[Along]:
    reversed_dims = x.attrs_as(DimensionsAttrs).dimensions
    yield from (Along(dim, (dim,)) for dim in range(len(x.dims)) if dim not in reversed_dims)


@SPLIT_RULES.register(Opcode.RESHAPE, Opcode.BITCAST)
def _reshape(x: HloInstruction) -> Iterator[Along]:
    """Yield dimensions with equal numbers of elements before them; a part of one is that part of the other."""
    source = x.operand(0)
    if math.prod(source.dims) != math.prod(x.dims) or not math.prod(x.dims):
        return
    if source.array_shape.element_type is not x.array_shape.element_type:
        return
    before = {math.prod(source.dims[:dim]): dim for dim, size in enumerate(source.dims) if size > 1}
    for dim, size in enumerate(x.dims):
        of = before.get(math.prod(x.dims[:dim]))
        if size > 1 and of is not None:
            yield Along(dim, (of,))


@SPLIT_RULES.register(Opcode.SLICE)
def _slice(x: HloInstruction) -> Iterator[Along]:
    strides = x.attrs_as(SliceAttrs).strides
    for dim, size in enumerate(x.dims):
        if size == x.operand(0).dims[dim] and strides[dim] == 1:
            yield Along(dim, (dim,))


@SPLIT_RULES.register(Opcode.DYNAMIC_SLICE)
def _dynamic_slice(x: HloInstruction) -> Iterator[Along]:
    """Yield the ways to split a dynamic-slice. The start of a dimension that is taken entirely is 0 for any operand."""
    starts = (None,) * (x.num_operands - 1)
    for dim, size in enumerate(x.dims):
        if size == x.operand(0).dims[dim]:
            yield Along(dim, (dim, *starts))


@SPLIT_RULES.register(Opcode.DYNAMIC_UPDATE_SLICE)
def _dynamic_update_slice(x: HloInstruction) -> Iterator[Along]:
    starts = (None,) * (x.num_operands - 2)
    for dim, size in enumerate(x.dims):
        if size == x.operand(1).dims[dim]:
            yield Along(dim, (dim, dim, *starts))


@SPLIT_RULES.register(Opcode.PAD)
def _pad(x: HloInstruction) -> Iterator[Along]:
    attrs = x.attrs_as(PadAttrs)
    for dim, padding in enumerate(zip(attrs.low, attrs.high, attrs.interior, strict=True)):
        if not any(padding):
            yield Along(dim, (dim, None))


@SPLIT_RULES.register(Opcode.CONCATENATE)
def _concatenate(x: HloInstruction) -> Iterator[Along]:
    (joined,) = x.attrs_as(DimensionsAttrs).dimensions
    for dim in range(len(x.dims)):
        if dim != joined:
            yield Along(dim, (dim,) * x.num_operands)


@SPLIT_RULES.register(Opcode.SORT)
def _sort(x: HloInstruction) -> Iterator[Along]:
    for dim in range(len(x.dims)):
        if dim != x.attrs_as(SortAttrs).dimension:
            yield Along(dim, (dim,) * x.num_operands)


@SPLIT_RULES.register(Opcode.DOT)
def _dot(x: HloInstruction) -> Iterator[Along]:
    attrs = x.attrs_as(DotAttrs)
    batch = len(attrs.lhs_batch)
    yield from (Along(n, (attrs.lhs_batch[n], attrs.rhs_batch[n])) for n in range(batch))
    left, right = (len(operand.dims) for operand in x.operands)
    lhs_free = [d for d in range(left) if d not in (*attrs.lhs_batch, *attrs.lhs_contracting)]
    rhs_free = [d for d in range(right) if d not in (*attrs.rhs_batch, *attrs.rhs_contracting)]
    yield from (Along(batch + n, (dim, None)) for n, dim in enumerate(lhs_free))
    yield from (Along(batch + len(lhs_free) + n, (None, dim)) for n, dim in enumerate(rhs_free))
    if may_be_summed(x.array_shape.element_type):
        for pair in zip(attrs.lhs_contracting, attrs.rhs_contracting, strict=True):
            yield Along(None, pair, Opcode.ADD)


@SPLIT_RULES.register(Opcode.CONVOLUTION)
def _convolution(x: HloInstruction) -> Iterator[Along]:
    attrs = x.attrs_as(ConvolutionAttrs)
    dims = attrs.dimension_numbers
    if attrs.batch_group_count == 1:
        yield Along(dims.output_batch, (dims.input_batch, None))
        if attrs.feature_group_count == 1:
            yield Along(dims.output_feature, (None, dims.kernel_output_feature))


@SPLIT_RULES.register(Opcode.REDUCE)
def _reduce(x: HloInstruction) -> Iterator[Along]:
    """Yield the ways to split a reduce. Over reduced dimensions each piece starts from the initial value, so that must
    be neutral.
    """
    if x.num_operands != 2:
        return
    reduced = x.attrs_as(DimensionsAttrs).dimensions
    rank = len(x.operand(0).dims)
    result_dims = [dim for dim in range(rank) if dim not in reduced]
    yield from (Along(n, (dim, None)) for n, dim in enumerate(result_dims))
    combine = _combining(x)
    if combine is not None:
        yield from (Along(None, (dim, None), combine) for dim in reduced)


def _combining(reduce: HloInstruction) -> Opcode | None:
    """Return the operation that joins the pieces' results; None if they cannot be joined exactly enough."""
    kind = reduction_kind(reduce.to_apply)
    init, element_type = reduce.operand(1), reduce.array_shape.element_type
    if kind is None or init.opcode is not Opcode.CONSTANT:
        return None
    literal = init.attrs_as(ConstantAttrs).literal
    neutral = Literal.of(init.shape, identity_value(kind, element_type))
    if literal is None or literal.value() != neutral.value():
        return None
    combine = OPERATION[kind]
    exact = combine not in (Opcode.ADD, Opcode.MULTIPLY)
    return combine if exact or may_be_summed(element_type) else None


def may_be_summed(element_type: PrimitiveType) -> bool:
    """Return whether terms of a sum may be stored in this type: rounding each to a narrow type would lose digits."""
    if element_type.is_integer:
        return True
    return (element_type.is_floating or element_type.is_complex) and element_type.bits >= 32
