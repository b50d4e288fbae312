"""Flow of run-time sizes of dimensions through operations, and the dimensions that an operation reduces.

reduce f32[a, b] over b    result dimension 0 is operand dimension 0; operand dimension 1 is used up: its padding
                           must be the reduction's neutral element
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import OPS
from spmd.ops.attrs import DimensionsAttrs, DotAttrs, PadAttrs, SliceAttrs
from spmd.ops.custom_call import is_sharding_annotation
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.registry import Registry
from spmd.shape import ArrayShape

OperandDim: TypeAlias = tuple[int, int]
"""(operand, its dimension)"""


@dataclass(frozen=True, slots=True)
class Flow:
    """Flow of run-time sizes through an op. ``result``: operand dimension to the result dimension of its size.
    ``used_up``: operand dimensions that no result dimension has.

    ``neutral``: for each operand with such, the value of padding that changes nothing.
    """

    result: Mapping[OperandDim, int]
    used_up: frozenset[OperandDim] = frozenset()
    neutral: Mapping[int, object] = field(default_factory=dict)

    def knows(self, operand_dim: OperandDim) -> bool:
        return operand_dim in self.result or operand_dim in self.used_up


FLOWS: Registry[Opcode, Callable[[HloInstruction], Flow]] = Registry("flow of sizes")


def flow_of(x: HloInstruction) -> Flow:
    """Return the flow of an instruction; dimensions without a rule are left out."""
    rule = FLOWS.get(x.opcode)
    if rule is not None and isinstance(x.shape, ArrayShape):
        return rule(x)
    return Flow({})


def _each_to_itself(x: HloInstruction) -> Flow:
    rank = x.array_shape.rank
    operands = [i for i, y in enumerate(x.operands) if y.array_shape.rank == rank]
    return Flow({(i, d): d for i in operands for d in range(rank)})


def _custom_call(x: HloInstruction) -> Flow:
    """Return the flow of a call that says a sharding alone; nothing is known of others."""
    return _each_to_itself(x) if is_sharding_annotation(x) else Flow({})


def _transpose(x: HloInstruction) -> Flow:
    order = x.attrs_as(DimensionsAttrs).dimensions
    return Flow({(0, source): d for d, source in enumerate(order)})


def _other_dimensions_pass(x: HloInstruction) -> Flow:
    """Return the flow of an op (concatenate, reverse) that passes all dimensions but those it works along."""
    changed = x.attrs_as(DimensionsAttrs).dimensions
    rest = [d for d in range(x.array_shape.rank) if d not in changed]
    return Flow({(i, d): d for i in range(x.num_operands) for d in rest})


def _slice(x: HloInstruction) -> Flow:
    attrs, dims = x.attrs_as(SliceAttrs), x.operand(0).dims
    unsliced = [d for d, n in enumerate(dims) if x.dims[d] == n and attrs.strides[d] == 1]
    return Flow({(0, d): d for d in unsliced})


def _pad(x: HloInstruction) -> Flow:
    attrs = x.attrs_as(PadAttrs)
    widths = zip(attrs.low, attrs.high, attrs.interior, strict=True)
    return Flow({(0, d): d for d, width in enumerate(widths) if width == (0, 0, 0)})


def _reduce(x: HloInstruction) -> Flow:
    """Return the flow of a reduction of one array by a known kind, whose neutral element is known."""
    kind = reduction_kind(x.to_apply)
    if x.num_operands != 2 or kind is None:
        return Flow({})
    reduced = x.attrs_as(DimensionsAttrs).dimensions
    result_dims = [d for d in range(x.operand(0).array_shape.rank) if d not in reduced]
    neutral = identity_value(kind, x.array_shape.element_type)
    return Flow(
        {(0, d): i for i, d in enumerate(result_dims)},
        frozenset((0, d) for d in reduced),
        {0: neutral},
    )


def _dot(x: HloInstruction) -> Flow:
    attrs = x.attrs_as(DotAttrs)
    sides = (
        (attrs.lhs_batch, attrs.lhs_contracting),
        (attrs.rhs_batch, attrs.rhs_contracting),
    )
    result: dict[OperandDim, int] = {}
    following = len(attrs.lhs_batch)
    for side, (batch, contracting) in enumerate(sides):
        result |= {(side, d): i for i, d in enumerate(batch)}
        for d in range(x.operand(side).array_shape.rank):
            if d not in batch and d not in contracting:
                result[side, d] = following
                following += 1
    used_up = {(side, d) for side, (_, contracting) in enumerate(sides) for d in contracting}
    return Flow(result, frozenset(used_up), {0: 0, 1: 0})


for _opcode in Opcode:
    if OPS[_opcode].elementwise and _opcode is not Opcode.MAP:
        FLOWS.add(_opcode, _each_to_itself)
FLOWS.add(Opcode.CUSTOM_CALL, _custom_call)
FLOWS.add(Opcode.TRANSPOSE, _transpose)
FLOWS.add(Opcode.CONCATENATE, _other_dimensions_pass)
FLOWS.add(Opcode.REVERSE, _other_dimensions_pass)
FLOWS.add(Opcode.SLICE, _slice)
FLOWS.add(Opcode.PAD, _pad)
FLOWS.add(Opcode.REDUCE, _reduce)
FLOWS.add(Opcode.DOT, _dot)
