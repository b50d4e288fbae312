"""Sums, products, extremes: neutral elements, double negation, division by powers of two.

Exact but for the sign of zero in x + 0 (docs/numerics.md).
"""

from __future__ import annotations

import math

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.reduction import identity_value
from spmd.passes.algebraic.match import element_type, is_splat, splat, used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType


@simplifies(Opcode.ADD)
def add_zero(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """x + 0 => x"""
    left, right = x.operands
    if is_splat(right, 0):
        return left
    return right if is_splat(left, 0) else None


@simplifies(Opcode.ADD)
def add_negated(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """a + -b => a - b"""
    left, right = x.operands
    if element_type(x) is PrimitiveType.PRED:
        return None
    if right.opcode is Opcode.NEGATE:
        return b.subtract(left, right.operand(0))
    return b.subtract(right, left.operand(0)) if left.opcode is Opcode.NEGATE else None


@simplifies(Opcode.SUBTRACT)
def subtract_zero(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """x - 0 => x;  a - -b => a + b;  i - i => 0 on integers"""
    left, right = x.operands
    if is_splat(right, 0):
        return left
    if right.opcode is Opcode.NEGATE:
        return b.add(left, right.operand(0))
    return b.full(x.array_shape, 0) if left is right and element_type(x).is_integer else None


@simplifies(Opcode.ADD, Opcode.SUBTRACT)
def add_constants(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """(i + 3) - 5 => i + -2 on integers"""
    kind = element_type(x)
    if not kind.is_integer:
        return None
    outer = _shifted(x)
    inner = _shifted(outer[0]) if outer is not None and used_once(outer[0]) else None
    if outer is None or inner is None:
        return None
    bits = 2**kind.bits
    total = (outer[1] + inner[1]) % bits
    if kind.is_signed_integer and total >= bits // 2:
        total -= bits
    return b.add(inner[0], b.full(x.array_shape, total))


def _shifted(x: HloInstruction) -> tuple[HloInstruction, int] | None:
    """Return ``x`` as a value plus a constant."""
    if x.opcode not in (Opcode.ADD, Opcode.SUBTRACT):
        return None
    left, right = x.operands
    constant = splat(right)
    if constant is not None:
        return left, int(constant) if x.opcode is Opcode.ADD else -int(constant)
    constant = splat(left) if x.opcode is Opcode.ADD else None
    return None if constant is None else (right, int(constant))


@simplifies(Opcode.MULTIPLY)
def multiply_by_one(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """x * 1 => x;  x * -1 => -x;  i * 0 => 0 on integers"""
    for value, factor in (x.operands, x.operands[::-1]):
        if is_splat(factor, 1):
            return value
        if (
            element_type(x) is not PrimitiveType.PRED
            and is_splat(factor, -1)
            and not element_type(x).is_complex
        ):
            return b.negate(value)
        if element_type(x).is_integer and is_splat(factor, 0):
            return b.full(x.array_shape, 0)
    return None


@simplifies(Opcode.MULTIPLY)
def multiply_by_mask(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """i * convert(p) => select(p, i, 0) on integers (nan * 0 is nan)"""
    if not element_type(x).is_integer:
        return None
    for value, mask in (x.operands, x.operands[::-1]):
        if mask.opcode is Opcode.CONVERT and element_type(mask.operand(0)) is PrimitiveType.PRED:
            return b.select(mask.operand(0), value, b.full(x.array_shape, 0))
    return None


@simplifies(Opcode.MULTIPLY, Opcode.DIVIDE)
def both_negated(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """-a * -b => a * b, and so for division of floating-point numbers"""
    left, right = x.operands
    if (
        left.opcode is not Opcode.NEGATE
        or right.opcode is not Opcode.NEGATE
        or not element_type(x).is_floating
    ):
        return None
    return b.binary(x.opcode, left.operand(0), right.operand(0))


@simplifies(Opcode.DIVIDE)
def divide_by_power_of_two(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """x / 1 => x;  x / 2^k => x * 2^-k, which is exact while 2^-k is a normal number"""
    left, right = x.operands
    if is_splat(right, 1):
        return left
    divisor = splat(right)
    if divisor is None or not element_type(x).is_floating:
        return None
    fraction, exponent = math.frexp(abs(float(divisor)))
    if (
        fraction != 0.5
        or not -_SAFE_EXPONENT[element_type(x).bits]
        < exponent
        < _SAFE_EXPONENT[element_type(x).bits]
    ):
        return None
    return b.multiply(left, b.full(x.array_shape, 1.0 / float(divisor)))


#: For exponents below this, 2^k and 2^-k are normal numbers in every format of that many bits (8-bit formats are left
#: alone).
_SAFE_EXPONENT = {4: 0, 8: 0, 16: 14, 32: 126, 64: 1022}


@simplifies(Opcode.REMAINDER)
def remainder_of_one(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """i mod 1 => 0 on integers"""
    is_zero = element_type(x).is_integer and is_splat(x.operand(1), 1)
    return b.full(x.array_shape, 0) if is_zero else None


@simplifies(Opcode.NEGATE)
def negate_twice(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """--x => x;  -(a - b) stays: it differs in the sign of zero"""
    inner = x.operand(0)
    return inner.operand(0) if inner.opcode is Opcode.NEGATE else None


@simplifies(Opcode.MAXIMUM, Opcode.MINIMUM)
def neutral_extreme(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """max(x, x) => x;  max(x, -inf) => x;  min(x, inf) => x"""
    left, right = x.operands
    if left is right:
        return left
    kind = ReductionKind.MAX if x.opcode is Opcode.MAXIMUM else ReductionKind.MIN
    neutral = identity_value(kind, element_type(x))
    for value, other in ((left, right), (right, left)):
        found = splat(other)
        if found is not None and bool(found == neutral):
            return value
    return None


@simplifies(Opcode.POWER)
def small_power(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """x ^ 1 => x;  x ^ 2 => x * x"""
    base, exponent = x.operands
    if is_splat(exponent, 1):
        return base
    return b.multiply(base, base) if is_splat(exponent, 2) else None
