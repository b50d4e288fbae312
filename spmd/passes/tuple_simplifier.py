"""Take tuples apart where they were just put together."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.checks import same_type
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class TupleSimplifier(Simplifier):
    """get-tuple-element(tuple(a, b), index=1)  =>  b
    tuple(get-tuple-element(t, 0), get-tuple-element(t, 1))  =>  t, where t has just these elements
    """

    name: ClassVar[str] = "tuple-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.GET_TUPLE_ELEMENT, Opcode.TUPLE)

    def simplify(self, module: HloModule) -> Simplify:
        return lambda x: match_element(x) or match_rebuilt(x)


def match_element(x: HloInstruction) -> HloInstruction | None:
    if x.opcode is not Opcode.GET_TUPLE_ELEMENT or x.operand(0).opcode is not Opcode.TUPLE:
        return None
    return x.operand(0).operand(x.attrs_as(TupleIndexAttrs).index)


def match_rebuilt(x: HloInstruction) -> HloInstruction | None:
    if x.opcode is not Opcode.TUPLE or not x.num_operands:
        return None
    elements = x.operands
    if any(e.opcode is not Opcode.GET_TUPLE_ELEMENT for e in elements):
        return None
    source = elements[0].operand(0)
    in_order = all(
        e.operand(0) is source and e.attrs_as(TupleIndexAttrs).index == i
        for i, e in enumerate(elements)
    )
    return source if in_order and same_type(source.shape, x.shape) else None
