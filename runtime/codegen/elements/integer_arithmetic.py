"""Integer arithmetic, with XLA's results where those of C are undefined."""

from __future__ import annotations

from functools import partial

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.elements.registry import BODIES, body_of
from runtime.codegen.elements.storage import wide_type
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType


def integer_divide(x: Int, by: Int, *, signed: bool) -> Int:
    """Divide. x / 0 has all bits set, and the lowest number divided by -1 is itself."""
    zero = by.equals(0)
    if not signed:
        return zero.select(x.constant(-1), x // zero.select(by.constant(1), by))
    special = zero | by.equals(-1)
    quotient = x.signed_quotient(special.select(by.constant(1), by))
    return special.select(zero.select(x.constant(-1), -x), quotient)


def _integer_rest(x: Int, by: Int, *, signed: bool) -> Int:
    zero = by.equals(0)
    if not signed:
        return zero.select(x, x % zero.select(by.constant(1), by))
    special = zero | by.equals(-1)
    return zero.select(x, x.signed_rest(special.select(by.constant(1), by)))


def integer_abs(x: Int, *, signed: bool) -> Int:
    """Compute the absolute value. That of the lowest number is the lowest number."""
    return (x < 0).select(-x, x) if signed else x


def integer_sign(x: Int, *, signed: bool) -> Int:
    if not signed:
        return x.differs(0).resized(x.type)
    return (x > 0).select(x.constant(1), x.signed_shift(x.width - 1))


@BODIES.register(Opcode.REMAINDER)
def remainder(signature: ElementSignature) -> str | None:
    """Compute the remainder. x % 0 is x, and x % -1 is 0.

    For floats it calls C's fmod, which is exact and has no vector instruction.
    """
    kind = signature.result
    if kind.is_floating:
        return f"%r = frem {wide_type(kind)} %a, %b"
    if not kind.is_integer:
        return None
    return body_of(signature, partial(_integer_rest, signed=kind.is_signed_integer))


@BODIES.register(Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_LOGICAL)
def shift(signature: ElementSignature) -> str | None:
    """Shift. The result is 0 if the distance is negative or at least the number of bits."""
    kind, left = signature.result, signature.opcode is Opcode.SHIFT_LEFT

    def shifted(x: Int, by: Int) -> Int:
        x, distance = _low_bits(x, kind), by & (kind.bits - 1)
        return _inside(by, kind).select(x << distance if left else x >> distance, 0)

    return body_of(signature, shifted)


@BODIES.register(Opcode.SHIFT_RIGHT_ARITHMETIC)
def arithmetic_shift(signature: ElementSignature) -> str | None:
    """Shift right with copies of the highest bit, also for unsigned numbers.

    If the distance is negative or at least the number of bits, all bits are copies.
    """
    kind = signature.result

    def shifted(x: Int, by: Int) -> Int:
        unused = x.width - kind.bits
        x = (x << unused).signed_shift(unused) if unused else x
        return x.signed_shift(_inside(by, kind).select(by, kind.bits - 1))

    return body_of(signature, shifted)


@BODIES.register(Opcode.MULHI)
def multiply_high(signature: ElementSignature) -> str | None:
    """Compute the upper half of the product, which has twice as many bits."""
    kind, signed = signature.result, signature.result.is_signed_integer
    if not kind.is_integer:
        return None

    def high(x: Int, y: Int) -> Int:
        unused, wide = x.width - kind.bits, f"i{2 * x.width}"
        # The bits above those of a narrow integer are arbitrary.
        own = [_shifted_right(each << unused, unused, signed=signed) for each in (x, y)]
        one, other = (each.resized(wide, signed=signed) for each in own)
        return _shifted_right(one * other, kind.bits, signed=signed).resized(x.type)

    return body_of(signature, high)


def _shifted_right(x: Int, distance: int, *, signed: bool) -> Int:
    return x.signed_shift(distance) if signed else x >> distance


@BODIES.register(Opcode.POPCNT)
def population_count(signature: ElementSignature) -> str | None:
    kind = signature.result
    return body_of(signature, lambda x: _low_bits(x, kind).one_bits())


@BODIES.register(Opcode.COUNT_LEADING_ZEROS)
def count_leading_zeros(signature: ElementSignature) -> str | None:
    kind = signature.result
    return body_of(signature, lambda x: _low_bits(x, kind).leading_zeros() - (x.width - kind.bits))


def _inside(distance: Int, kind: PrimitiveType) -> Bool:
    return distance.compared("ult", kind.bits)


def _low_bits(x: Int, kind: PrimitiveType) -> Int:
    """Return the bits of the number with zeros above, without the sign extension of narrow integers."""
    return x if x.width == kind.bits else x & ((1 << kind.bits) - 1)


def power(x: Int, y: Int, kind: PrimitiveType) -> Int:
    """Compute x^y modulo 2^bits by squaring. For y < 0 the exact value is rounded to zero, and 0^y is 0."""
    negative = y.compared("slt", 0) if kind.is_signed_integer else None
    # Only 1 and -1 have negative powers that are not 0; their parity decides.
    left = y if negative is None else negative.select(y & 1, y)
    total, square = x.constant(1), x
    for step in range(kind.bits):
        bit = (left >> step) & 1
        total = bit.compared("ne", 0).select(total * square, total)
        square = square * square
    if negative is None:
        return total
    unit = x.compared("eq", 1) | x.compared("eq", -1)
    return (negative & ~unit).select(x.constant(0), total)


@BODIES.register(Opcode.POWER)
def integer_power(signature: ElementSignature) -> str | None:
    kind = signature.result
    return body_of(signature, lambda x, y: power(x, y, kind)) if kind.is_integer else None
