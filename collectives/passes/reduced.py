"""Values that are a reduction over devices, and what may be done before that reduction as well as behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from collectives.passes.reducing import Reducing, reducing
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import Literal
from spmd.ops.reduction import OPERATION, identity_value, on_type, reduction_kind
from spmd.passes.algebraic.match import constant_array, used_once
from spmd.passes.rewrite import is_pinned
from spmd.shape import ArrayShape, PrimitiveType

#: Function that returns whether a unary op between a reduction and the user of its result may be moved before the
#: reduction.
Moves: TypeAlias = Callable[[HloInstruction, ReductionKind], bool]

_KIND = {opcode: kind for kind, opcode in OPERATION.items()} | {Opcode.SUBTRACT: ReductionKind.SUM}
#: Ops that combine two results of a reduction as the reduction combines elements.
OPERATIONS = tuple(_KIND)

#: Ops that move or drop elements in the same way on every device.
_MOVES = frozenset(
    {Opcode.RESHAPE, Opcode.BITCAST, Opcode.TRANSPOSE, Opcode.COPY, Opcode.REVERSE, Opcode.SLICE}
)
#: Reductions that select one of the values, also after a monotone function of all values.
_CHOOSING = (ReductionKind.MIN, ReductionKind.MAX)
_FLOATS = (PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F32, PrimitiveType.F64)


def operation_kind(x: HloInstruction) -> ReductionKind:
    """Return the reduction kind of an operation in ``OPERATIONS``; a difference is a sum with a negated term."""
    return on_type(_KIND[x.opcode], x.array_shape.element_type)


def moves_exactly(step: HloInstruction, kind: ReductionKind) -> bool:
    """Return whether ``step`` commutes with the reduction: reshapes, transposes, slices and the like, and some
    conversions.

    These are conversions of integers to narrower ones, whose sums agree modulo their range, and of floats to narrower
    ones for minimum or maximum.
    """
    if step.opcode is not Opcode.CONVERT:
        return step.opcode in _MOVES and _type(step) is _type(step.operand(0))
    old, new = _type(step.operand(0)), _type(step)
    if old.is_integer and new.is_integer:
        return kind not in _CHOOSING and new.bits <= old.bits
    return kind in _CHOOSING and old in _FLOATS and new in _FLOATS and new.bits < old.bits


def is_neutral(x: HloInstruction, kind: ReductionKind) -> bool:
    """Return whether ``x`` is a constant of one element, the neutral element of the reduction."""
    value, element_type = constant_array(x), _type(x)
    if value is None or value.size != 1:
        return False
    neutral = Literal.of(ArrayShape(element_type, ()), identity_value(kind, element_type)).array
    return bool(value.reshape(()) == neutral)


def is_sum_over_elements(x: HloInstruction, kind: ReductionKind) -> bool:
    """Return whether ``x`` is a reduce of that kind of one array, from the neutral element. It commutes with a
    reduction over devices.
    """
    return (
        x.opcode is Opcode.REDUCE
        and x.num_operands == 2
        and reduction_kind(x.to_apply) is kind
        and is_neutral(x.operand(1), kind)
    )


def _type(x: HloInstruction) -> PrimitiveType:
    return x.array_shape.element_type


@dataclass(frozen=True)
class Reduced:
    """A collective of one operand and ``steps``, the instructions between it and the user of its result, the last one
    first.
    """

    collective: HloInstruction
    steps: Sequence[HloInstruction]
    reducing: Reducing

    @property
    def merge_key(self) -> Reducing:
        """Equal for two that may become one: the types may have been converted into one."""
        element_type = _type((self.steps or [self.collective])[0])
        return replace(self.reducing, element_type=element_type)

    def local(self) -> HloInstruction:
        """Apply the steps to the collective's operand."""
        value = self.collective.operand(0)
        for step in reversed(self.steps):
            assert step.parent is not None
            value = step.parent.add(step.clone(step.shape, (value,)))
        return value

    def of(self, value: HloInstruction, b: Builder) -> HloInstruction:
        """Create the collective of another value to replace this one: of the result of ``local``, or of a value
        computed from it.
        """
        merge_key, reducer = self.merge_key, self.collective.to_apply
        if merge_key.element_type is not self.reducing.element_type:
            assert merge_key.kind is not None
            reducer = b.scope.reducer(merge_key.kind, merge_key.element_type)
        attrs = self.collective.attrs
        result = b.create(self.collective.opcode, (value,), attrs, calls=(reducer,))
        result.annotations = self.collective.annotations
        return result


def reduced(
    value: HloInstruction, kind: ReductionKind, opcode: Opcode, moves: Moves
) -> Reduced | None:
    """Return ``value`` as a collective of that kind and the steps after it, which may be moved before it. Returns None
    if one of them has other users.
    """
    steps: list[HloInstruction] = []
    while value.opcode is not opcode:
        if not used_once(value) or is_pinned(value) or not moves(value, kind):
            return None
        steps.append(value)
        value = value.operand(0)
    if not used_once(value) or value.num_operands != 1:
        return None
    found = reducing(value)
    return Reduced(value, steps, found) if found is not None and found.kind is kind else None
