"""select: known predicates, equal branches, predicates as values."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.passes.algebraic.match import element_type, is_splat, splat
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType


@simplifies(Opcode.SELECT)
def known_predicate(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """select(true, a, b) => a;  select(p, a, a) => a"""
    predicate, on_true, on_false = x.operands
    if on_true is on_false:
        return on_true
    known = splat(predicate)
    return None if known is None else (on_true if bool(known) else on_false)


@simplifies(Opcode.SELECT)
def predicate_as_value(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """select(p, true, false) => p;  select(p, false, true) => not p"""
    predicate, on_true, on_false = x.operands
    if element_type(x) is not PrimitiveType.PRED or predicate.dims != x.dims:
        return None
    if is_splat(on_true, 1) and is_splat(on_false, 0):
        return predicate
    return b.logical_not(predicate) if is_splat(on_true, 0) and is_splat(on_false, 1) else None


@simplifies(Opcode.SELECT)
def nested_same_predicate(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """select(p, select(p, a, b), c) => select(p, a, c), and so on the other side"""
    predicate, on_true, on_false = x.operands
    if on_true.opcode is Opcode.SELECT and on_true.operand(0) is predicate:
        return b.select(predicate, on_true.operand(1), on_false)
    if on_false.opcode is Opcode.SELECT and on_false.operand(0) is predicate:
        return b.select(predicate, on_true, on_false.operand(2))
    return None
