"""Sums of all-reduces become all-reduces of sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.reassociation import Reassociation
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.passes.interface import register_pass
from spmd.shape import PrimitiveType

#: They put elements elsewhere, or leave some out, alike on every device.
_MOVES = frozenset(
    {Opcode.RESHAPE, Opcode.BITCAST, Opcode.TRANSPOSE, Opcode.COPY, Opcode.REVERSE, Opcode.SLICE}
)
#: Reductions that give one of the values, whatever monotone function is applied first.
_CHOOSING = (ReductionKind.MIN, ReductionKind.MAX)
_FLOATS = (PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F32, PrimitiveType.F64)


@register_pass
@dataclass(frozen=True)
class AllReduceReassociate(Reassociation):
    """add(all-reduce(a), all-reduce(b))  =>  all-reduce(add(a, b))    and so for other reductions, of the same devices

    Reshapes, transposes, slices and the like in between go before the all-reduce; so do conversions that the reduction
    does not feel: of integers to narrower ones (sums agree modulo their size), of floats to narrower ones where it is
    the least or the greatest that is wanted. Integers stay what they were, floats are added in another order.

    ``widen``: conversions of floats to wider ones, too, before sums. The sum over devices is then taken in the wider
    type, without the rounding that the program states, and of as many bytes as before.
    """

    name: ClassVar[str] = "all-reduce-reassociate"
    opcode: ClassVar[Opcode] = Opcode.ALL_REDUCE
    widen: bool = False

    def moves(self, step: HloInstruction, kind: ReductionKind) -> bool:
        if step.opcode is Opcode.CONVERT:
            return self._feels_nothing(step, kind)
        return step.opcode in _MOVES and _element_type(step) is _element_type(step.operand(0))

    def _feels_nothing(self, convert: HloInstruction, kind: ReductionKind) -> bool:
        old, new = _element_type(convert.operand(0)), _element_type(convert)
        if old.is_integer and new.is_integer:
            return kind not in _CHOOSING and new.bits <= old.bits
        if old not in _FLOATS or new not in _FLOATS:
            return False
        if kind in _CHOOSING:
            return new.bits < old.bits
        return self.widen and kind is ReductionKind.SUM and new.bits > old.bits


def _element_type(x: HloInstruction) -> PrimitiveType:
    return x.array_shape.element_type
