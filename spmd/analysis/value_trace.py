"""Traces of values to their origin: through tuples, copies, annotations, calls and fusions.

They recognize induction variables, whatever passes have wrapped around them.
"""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.ops.custom_call import is_sharding_annotation
from spmd.shape import PrimitiveType

_FORWARDING = (
    Opcode.COPY,
    Opcode.BITCAST,
    Opcode.RESHAPE,
    Opcode.OPT_BARRIER,
    Opcode.DOMAIN,
)
_ENTERED = (Opcode.CALL, Opcode.FUSION)


@dataclass(frozen=True, slots=True)
class Value:
    """An ``instruction`` as seen inside a chain of calls; ``caller`` is the enclosing call (itself a value)."""

    instruction: HloInstruction
    caller: Value | None = None

    def operand(self, i: int) -> Value:
        return Value(self.instruction.operand(i), self.caller)


def trace(value: Value) -> Value:
    """Return the value behind forwarding instructions. Reshapes count as forwarding: the result describes
    scalars only.
    """
    while True:
        step = _step(value)
        if step is None:
            return value
        value = step


def _step(value: Value) -> Value | None:
    x = value.instruction
    if x.opcode in _FORWARDING or is_sharding_annotation(x) or _widens(x):
        return value.operand(0)
    if x.opcode is Opcode.GET_TUPLE_ELEMENT:
        source = trace(value.operand(0))
        if source.instruction.opcode is Opcode.TUPLE:
            return source.operand(x.attrs_as(TupleIndexAttrs).index)
        return None
    if x.opcode in _ENTERED:
        return Value(x.to_apply.root, value)
    if x.opcode is Opcode.PARAMETER and value.caller is not None:
        return value.caller.operand(x.attrs_as(ParameterAttrs).number)
    return None


def _widens(x: HloInstruction) -> bool:
    """Return whether this is a conversion between integer types that keeps every value."""
    if x.opcode is not Opcode.CONVERT:
        return False
    old, new = x.operand(0).array_shape.element_type, x.array_shape.element_type
    return old.is_integer and new.is_integer and integer_fits(old, new)


def integer_fits(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Return whether an integer type holds every value of another."""
    if source.is_signed_integer == target.is_signed_integer:
        return target.bits >= source.bits
    return source.is_unsigned_integer and target.bits > source.bits


def constant_int(value: Value) -> int | None:
    """Return the integer that a value is known to be, through sums, differences and products of constants.

    Returns None also if these do not fit their type.
    """
    known: dict[Value, int] = {}
    first = trace(value)
    stack = [first]
    while stack:
        one = stack[-1]
        x = one.instruction
        result: int | None = None
        if x.opcode is Opcode.CONSTANT:
            result = _literal_int(x)
        elif x.opcode in _ARITHMETIC and x.num_operands == 2:
            operands = [trace(one.operand(n)) for n in range(2)]
            missing = [operand for operand in operands if operand not in known]
            if missing:
                stack += missing
                continue
            computed = _ARITHMETIC[x.opcode](*(known[operand] for operand in operands))
            result = computed if holds_integer(x.array_shape.element_type, computed) else None
        if result is None:
            return None
        known[one] = result
        stack.pop()
    return known[first]


def _literal_int(constant: HloInstruction) -> int | None:
    literal = constant.attrs_as(ConstantAttrs).literal
    if literal is None or not literal.is_scalar or literal.value().dtype.kind not in "iu":
        return None
    return int(literal.value())


def holds_integer(element_type: PrimitiveType, value: int) -> bool:
    """Return whether ``value`` is a number of the integer type."""
    if element_type.is_signed_integer:
        return -(1 << (element_type.bits - 1)) <= value < 1 << (element_type.bits - 1)
    return 0 <= value < 1 << element_type.bits


_ARITHMETIC = {
    Opcode.ADD: int.__add__,
    Opcode.SUBTRACT: int.__sub__,
    Opcode.MULTIPLY: int.__mul__,
}
