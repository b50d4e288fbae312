"""Gathers that are slices, or whose operand need not be computed entirely."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import GatherAttrs
from spmd.passes.algebraic.match import constant_array, splat
from spmd.passes.gathered_values import gather_of_gather, gather_of_iota
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at


@register_pass
@dataclass(frozen=True)
class GatherSimplifier(Simplifier):
    """gather(x, {{2, 3}})  =>  reshape(slice(x)), for one index vector
    gather(x, {15, 13, .., 1})  =>  reverse(slice(x)[1:16:2]), in even steps along one dimension

    of constant indices, clamped as the gather does. Slices and reversals are views: no data moves.

    gather(gather(x, i), j)  =>  gather(x, gather(i, j))
    gather(iota, i)  =>  i, clamped
    """

    name: ClassVar[str] = "gather-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.GATHER,)
    makes_values: ClassVar[bool] = True

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def slice_of(x: HloInstruction) -> HloInstruction | None:
            if not x.array_shape.num_elements:
                return None
            b = builder_at(x, scope)
            return (
                one_slice(x, b)
                or even_steps(x, b)
                or gather_of_iota(x, b)
                or gather_of_gather(x, b)
            )

        return slice_of


def one_slice(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Return the slice that equals a gather with one constant index vector; None for other gathers."""
    attrs, (operand, indices) = x.attrs_as(GatherAttrs), x.operands
    vector = _constants(indices)
    if not vector or len(vector) != len(attrs.start_index_map):
        return None
    starts = [0] * len(operand.dims)
    for d, start in zip(attrs.start_index_map, vector, strict=True):
        starts[d] = min(max(start, 0), operand.dims[d] - attrs.slice_sizes[d])
    limits = [start + size for start, size in zip(starts, attrs.slice_sizes, strict=True)]
    return b.reshape(b.slice(operand, starts, limits), x.dims)


def even_steps(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Return the strided slice that equals a gather whose constant indices have a constant step along one dimension;
    None for other gathers.
    """
    counted = match_even_steps(x)
    if counted is None:
        return None
    operand, d = x.operand(0), counted.dimension
    starts, limits = [0] * len(operand.dims), list(operand.dims)
    strides = [1] * len(operand.dims)
    starts[d], limits[d], strides[d] = counted.first, counted.last + 1, abs(counted.step)
    rows = b.slice(operand, starts, limits, strides)
    if counted.step < 0:
        rows = b.reverse(rows, (d,))
    return b.reshape(b.transpose_by(rows, counted.order), x.dims)


@dataclass(frozen=True)
class EvenStride:
    """Every ``step``-th slice from ``first`` to ``last`` along ``dimension``, backwards where ``step`` < 0.

    ``order``: the operand's dimensions as the result runs through them (dimensions of size 1 left out of account).
    """

    dimension: int
    first: int
    last: int
    step: int
    order: list[int]


def match_even_steps(x: HloInstruction) -> EvenStride | None:
    attrs, operand = x.attrs_as(GatherAttrs), x.operand(0)
    if len(attrs.start_index_map) != 1 or attrs.operand_batching_dims:
        return None
    (dimension,) = attrs.start_index_map
    last = operand.dims[dimension] - 1
    indices = [min(max(i, 0), last) for i in _constants(x.operand(1))]
    step = _even_step(indices)
    order = _result_order(x, dimension)
    slice_sizes = [*operand.dims]
    slice_sizes[dimension] = 1
    if tuple(slice_sizes) != attrs.slice_sizes or step is None or order is None:
        return None
    return EvenStride(dimension, min(indices), max(indices), step, order)


def _constants(indices: HloInstruction) -> list[int]:
    """Return the constant indices in row-major order; an empty list if they are not constant."""
    if indices.opcode is Opcode.BROADCAST and (one := splat(indices)) is not None:
        return [int(one)] * indices.array_shape.num_elements
    array = constant_array(indices)
    return [int(i) for i in array.reshape(-1)] if array is not None else []


def _even_step(indices: Sequence[int]) -> int | None:
    """Return the constant difference of consecutive positions; None if it varies or is 0."""
    steps = {after - before for before, after in pairwise(indices)}
    return steps.pop() if len(steps) == 1 and 0 not in steps else None


def _result_order(x: HloInstruction, dimension: int) -> list[int] | None:
    """Return the operand's dimensions in the result's order. ``dimension`` stands where the batch dimensions are.

    Returns None if the batch dimensions are not adjacent.
    """
    attrs, rank = x.attrs_as(GatherAttrs), len(x.operand(0).dims)
    batch = [d for d in range(len(x.dims)) if d not in attrs.offset_dims]
    if not batch or batch != list(range(batch[0], batch[-1] + 1)):
        return None
    inside = [d for d in range(rank) if d not in attrs.collapsed_slice_dims]
    before = {
        d for d, offset_dim in zip(inside, attrs.offset_dims, strict=True) if offset_dim < batch[0]
    }
    front = [d for d in range(rank) if d in before and d != dimension]
    back = [d for d in range(rank) if d not in before and d != dimension]
    return [*front, dimension, *back]
