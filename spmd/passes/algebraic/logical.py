"""and, or, xor, not: neutral and absorbing elements."""

from __future__ import annotations

from dataclasses import replace

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import CompareAttrs, Opcode
from spmd.passes.algebraic.match import element_type, is_splat, splat, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType


def all_ones(x: HloInstruction) -> bool:
    """Return whether every bit of every element is set."""
    value = splat(x)
    if value is None:
        return False
    if element_type(x) is PrimitiveType.PRED:
        return bool(value)
    bits = element_type(x).bits
    return int(value) in (-1, 2**bits - 1)


@simplifies(Opcode.AND, Opcode.OR)
def neutral_or_absorbing(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """x and 1 => x;  x and 0 => 0;  x or 0 => x;  x or 1 => 1;  x and x => x"""
    left, right = x.operands
    if left is right:
        return left
    for value, other in ((left, right), (right, left)):
        if all_ones(other):
            return value if x.opcode is Opcode.AND else other
        if is_splat(other, 0):
            return other if x.opcode is Opcode.AND else value
    return None


@simplifies(Opcode.NOT)
def not_twice(x: HloInstruction, _: Builder) -> HloInstruction | None:
    inner = x.operand(0)
    return inner.operand(0) if inner.opcode is Opcode.NOT else None


_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


@simplifies(Opcode.NOT)
def not_of_compare(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """not (a == b) => a != b;  not (i < j) => i >= j on integers (of a nan neither holds)"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.COMPARE or not used_once(inner):
        return None
    attrs = inner.attrs_as(CompareAttrs)
    kind = element_type(inner.operand(0))
    if attrs.direction not in ("EQ", "NE") and (kind.is_floating or kind.is_complex):
        return None
    opposite = replace(attrs, direction=_OPPOSITE[attrs.direction])
    return b.create(Opcode.COMPARE, inner.operands, opposite)
