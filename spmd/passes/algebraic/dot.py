"""dot: transposes of its operands become dimension numbers; products over nothing, over one, of repeated values.

ragged-dot: the groups of a batch dimension change nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs, RaggedDotAttrs
from spmd.ops.dot import free_dims
from spmd.passes.algebraic.convert import keeps_every_value
from spmd.passes.algebraic.match import broadcast_dims, element_type, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.passes.rewrite import is_annotated
from spmd.shape import ArrayShape, PrimitiveType


@simplifies(Opcode.DOT)
def fold_transposes(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dot(transpose(a), b) => dot(a, b) with other dimension numbers, if the free dimensions stay in order.

    Dimensions of size 1 may be in any order: if they are moved, the result is reshaped.
    """
    attrs = x.attrs_as(DotAttrs)
    if attrs.extra:
        return None
    left = _unfolded(x.operand(0), attrs.lhs_batch, attrs.lhs_contracting)
    right = _unfolded(x.operand(1), attrs.rhs_batch, attrs.rhs_contracting)
    if left is None and right is None:
        return None
    lhs, rhs = x.operands
    if left is not None:
        lhs, batch, contracting = left
        attrs = replace(attrs, lhs_batch=batch, lhs_contracting=contracting)
    if right is not None:
        rhs, batch, contracting = right
        attrs = replace(attrs, rhs_batch=batch, rhs_contracting=contracting)
    folded = b.dot(lhs, rhs, attrs, x.array_shape.element_type)
    return b.reshape_to(folded, x.dims)


Folded = tuple[HloInstruction, tuple[int, ...], tuple[int, ...]]


def _unfolded(
    operand: HloInstruction, batch: tuple[int, ...], contracting: tuple[int, ...]
) -> Folded | None:
    if operand.opcode is not Opcode.TRANSPOSE:
        return None
    order = operand.attrs_as(DimensionsAttrs).dimensions
    free = [order[d] for d in free_dims(len(order), batch, contracting) if operand.dims[d] != 1]
    if free != sorted(free):
        return None
    return operand.operand(0), tuple(order[d] for d in batch), tuple(order[d] for d in contracting)


@simplifies(Opcode.DOT)
def contract_in_order(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """lhs_contracting={2,1}, rhs_contracting={1,0} => {1,2}, {0,1}: the larger operand is read in its memory order"""
    attrs, (lhs, rhs) = x.attrs_as(DotAttrs), x.operands
    pairs = list(zip(attrs.lhs_contracting, attrs.rhs_contracting, strict=True))
    side = 0 if lhs.array_shape.byte_size >= rhs.array_shape.byte_size else 1
    ordered = sorted(pairs, key=lambda pair: pair[side])
    if attrs.extra or [p for p in ordered if _is_wide(lhs, p)] == [
        p for p in pairs if _is_wide(lhs, p)
    ]:
        return None
    left, right = zip(*ordered, strict=True)
    attrs = replace(attrs, lhs_contracting=left, rhs_contracting=right)
    return b.dot(lhs, rhs, attrs, element_type(x))


def _is_wide(lhs: HloInstruction, pair: tuple[int, int]) -> bool:
    return lhs.dims[pair[0]] != 1


@simplifies(Opcode.DOT)
def dot_of_widened(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """f32 dot(f32 convert(bf16 a), f32 convert(bf16 c)) => f32 dot(bf16 a, bf16 c): products and sums are f32 anyway"""
    attrs = x.attrs_as(DotAttrs)
    factors = None if attrs.extra else _factors_before_widening(x, attrs)
    return None if factors is None else b.dot(*factors, attrs, element_type(x))


@simplifies(Opcode.RAGGED_DOT)
def ragged_dot_of_widened(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """f32 ragged-dot(f32 convert(bf16 a), f32 c, sizes) => f32 ragged-dot(bf16 a, f32 c, sizes), as for dot"""
    attrs = x.attrs_as(RaggedDotAttrs)
    factors = _factors_before_widening(x, attrs.dot)
    if factors is None:
        return None
    operands = (*factors, x.operand(2))
    return b.create(Opcode.RAGGED_DOT, operands, attrs, shape=ArrayShape(element_type(x), ()))


def _factors_before_widening(
    x: HloInstruction, attrs: DotAttrs
) -> tuple[HloInstruction, HloInstruction] | None:
    """Return the factors of the product ``x`` without conversions that widen them; None if there are none."""
    lhs, rhs = x.operands[:2]
    if attrs.algorithm or any(element_type(o) is not element_type(x) for o in (lhs, rhs)):
        return None
    sources = _before_widening(lhs), _before_widening(rhs)
    return None if sources == (lhs, rhs) else sources


def _before_widening(operand: HloInstruction) -> HloInstruction:
    """Return the operand of a conversion that only the dot reads, if it keeps every value and the kind of the type."""
    if operand.opcode is not Opcode.CONVERT or not used_once(operand) or is_annotated(operand):
        return operand
    source, kind = operand.operand(0), element_type(operand)
    same_kind = element_type(source).is_floating == kind.is_floating
    if element_type(source) is PrimitiveType.PRED or element_type(source).bits < 8 or not same_kind:
        return operand
    return source if keeps_every_value(element_type(source), kind) else operand


@simplifies(Opcode.DOT)
def dot_over_nothing(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Contracting no elements => 0"""
    empty = not x.operand(0).array_shape.num_elements or not x.operand(1).array_shape.num_elements
    return b.full(x.array_shape, 0) if empty and x.array_shape.num_elements else None


@simplifies(Opcode.DOT)
def dot_over_one(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A contraction over dimensions of size 1 only => a product of broadcast operands (a sum of -0 alone is +0)"""
    attrs, kind = x.attrs_as(DotAttrs), element_type(x)
    if attrs.extra or any(x.operand(0).dims[d] != 1 for d in attrs.lhs_contracting):
        return None
    if kind is PrimitiveType.PRED or not all(
        keeps_every_value(element_type(o), kind) for o in x.operands
    ):
        return None
    batch, (lhs_free, rhs_free) = range(len(attrs.lhs_batch)), _free(x)
    second = len(batch) + len(lhs_free)
    left = (*attrs.lhs_batch, *lhs_free), (*batch, *range(len(batch), second))
    right = (*attrs.rhs_batch, *rhs_free), (*batch, *range(second, len(x.dims)))
    return b.multiply(_spread(x, 0, *left, b), _spread(x, 1, *right, b))


def _free(x: HloInstruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    attrs, (lhs, rhs) = x.attrs_as(DotAttrs), x.operands
    return (
        free_dims(len(lhs.dims), attrs.lhs_batch, attrs.lhs_contracting),
        free_dims(len(rhs.dims), attrs.rhs_batch, attrs.rhs_contracting),
    )


def _spread(
    x: HloInstruction, side: int, dims: tuple[int, ...], result_dims: tuple[int, ...], b: Builder
) -> HloInstruction:
    """Return an operand broadcast over the result of ``x``: its dimension dims[i] becomes result_dims[i]; its other
    dimensions, all of size 1, are dropped.
    """
    operand, ordered = x.operand(side), sorted(dims)
    smaller = b.reshape(operand, [operand.dims[d] for d in ordered])
    if element_type(smaller) is not element_type(x):
        smaller = b.convert(smaller, element_type(x))
    return b.broadcast(smaller, [result_dims[dims.index(d)] for d in ordered], x.dims)


#: Longest contraction of a batch of vectors, and of matrices and vectors, that is written as a reduction (measured:
#: 20,000 products of two [3] take a tenth of the time, of [3,3] and [3] a quarter, of [16,16] and [16] all of it).
SHORT_OF_VECTORS, SHORT_OF_MATRICES = 64, 8
#: Most elements of such a matrix. One of 256 gains 5 to 20 % alone, but a product may be in one kernel with a softmax
#: of its result, and a reduction may not. The reduction of one of 1,000 takes 1.1 times as long as the product.
SMALL_MATRIX = 128
#: Fewest batches.
_BATCHES = 8


@simplifies(Opcode.DOT)
def dot_along_few(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dot(f32[n,i,k], f32[n,k]), batches n, few k => reduce(multiply(.., ..)), since a library is called for each batch

    Narrow floats are multiplied and summed in f32, as dot does.
    """
    attrs, kind, free = x.attrs_as(DotAttrs), element_type(x), _free(x)
    if attrs.extra or attrs.algorithm or kind is PrimitiveType.PRED:
        return None
    lhs, rhs = x.operands
    contracted = tuple(lhs.dims[d] for d in attrs.lhs_contracting)
    batches = math.prod(lhs.dims[d] for d in attrs.lhs_batch)
    are_vectors = [
        all(operand.dims[d] == 1 for d in own)
        for own, operand in zip(free, (lhs, rhs), strict=True)
    ]
    longest = SHORT_OF_VECTORS if all(are_vectors) else SHORT_OF_MATRICES
    if not any(are_vectors) or not 1 < math.prod(contracted) <= longest or batches < _BATCHES:
        return None
    largest = max(lhs.array_shape.num_elements, rhs.array_shape.num_elements) // batches
    if not all(are_vectors) and largest > SMALL_MATRIX:
        return None
    # Dimensions of the products: batch, free ones of both, contracted.
    batch, rank = range(len(attrs.lhs_batch)), len(x.dims)
    first = len(batch) + len(free[0])
    ends = tuple(range(rank, rank + len(contracted)))
    sides = (
        (lhs, (*attrs.lhs_batch, *free[0], *attrs.lhs_contracting), range(len(batch), first)),
        (rhs, (*attrs.rhs_batch, *free[1], *attrs.rhs_contracting), range(first, rank)),
    )
    computed = PrimitiveType.F32 if kind.is_floating and kind.byte_size < 4 else kind
    factors = []
    for operand, dims, own in sides:
        result_dim = dict(zip(dims, (*batch, *own, *ends), strict=True))
        order = [result_dim[d] for d in range(len(dims))]
        factors.append(b.broadcast(b.as_type(operand, computed), order, (*x.dims, *contracted)))
    product = b.multiply(factors[0], factors[1])
    return b.as_type(b.reduce(product, ends, ReductionKind.SUM), kind)


@simplifies(Opcode.DOT)
def dot_of_repeated(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dot(a, broadcast(c)) => broadcast(dot(a, c)) where c is repeated along free dimensions"""
    attrs, free = x.attrs_as(DotAttrs), _free(x)
    if attrs.extra:
        return None
    for side, first in ((0, len(attrs.lhs_batch)), (1, len(attrs.lhs_batch) + len(free[0]))):
        operand = x.operand(side)
        if operand.opcode is not Opcode.BROADCAST:
            continue
        repeated = [d for d in free[side] if d not in broadcast_dims(operand)]
        if not any(operand.dims[d] != 1 for d in repeated):
            continue
        gone = {first + free[side].index(d) for d in repeated}
        smaller = _without(x, side, repeated, b)
        return b.broadcast(smaller, [d for d in range(len(x.dims)) if d not in gone], x.dims)
    return None


def _without(x: HloInstruction, side: int, dims: list[int], b: Builder) -> HloInstruction:
    """Return the same dot with the broadcast on one side replaced by one without the dimensions ``dims``."""
    attrs, operand = x.attrs_as(DotAttrs), x.operand(side)
    remaining = [d for d in range(len(operand.dims)) if d not in dims]
    new_dim = {d: i for i, d in enumerate(remaining)}
    smaller = b.broadcast(
        operand.operand(0),
        [new_dim[d] for d in broadcast_dims(operand)],
        [operand.dims[d] for d in remaining],
    )
    if side == 0:
        batch, contracting = attrs.lhs_batch, attrs.lhs_contracting
    else:
        batch, contracting = attrs.rhs_batch, attrs.rhs_contracting
    batch = tuple(new_dim[d] for d in batch)
    contracting = tuple(new_dim[d] for d in contracting)
    if side == 0:
        attrs = replace(attrs, lhs_batch=batch, lhs_contracting=contracting)
        return b.dot(smaller, x.operand(1), attrs, element_type(x))
    attrs = replace(attrs, rhs_batch=batch, rhs_contracting=contracting)
    return b.dot(x.operand(0), smaller, attrs, element_type(x))


@simplifies(Opcode.RAGGED_DOT)
def ragged_dot_of_a_batch(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """ragged-dot(a, c, sizes) whose groups are runs of a batch dimension => dot(a, c)"""
    attrs = x.attrs_as(RaggedDotAttrs)
    if attrs.lhs_ragged_dims[0] not in attrs.dot.lhs_batch:
        return None
    return b.dot(x.operand(0), x.operand(1), attrs.dot, element_type(x))
