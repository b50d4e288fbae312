"""Integer arithmetic, with XLA's results where those of C are undefined."""

from __future__ import annotations

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.elements.registry import BODIES, body_of
from runtime.codegen.elements.storage import wide_type
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType


def integer_divide(kind: PrimitiveType, t: str) -> str:
    """Divide. x / 0 has all bits set, and the lowest number divided by -1 is itself."""
    if not kind.is_signed_integer:
        return f"""%zero = icmp eq {t} %b, 0
  %safe = select i1 %zero, {t} 1, {t} %b
  %quotient = udiv {t} %a, %safe
  %r = select i1 %zero, {t} -1, {t} %quotient"""
    return f"""%zero = icmp eq {t} %b, 0
  %back = icmp eq {t} %b, -1
  %special = or i1 %zero, %back
  %safe = select i1 %special, {t} 1, {t} %b
  %quotient = sdiv {t} %a, %safe
  %negated = sub {t} 0, %a
  %other = select i1 %zero, {t} -1, {t} %negated
  %r = select i1 %special, {t} %other, {t} %quotient"""


def integer_abs(kind: PrimitiveType, t: str) -> str:
    """Compute the absolute value. That of the lowest number is the lowest number."""
    if not kind.is_signed_integer:
        return f"%r = add {t} %a, 0"
    return f"""%negative = icmp slt {t} %a, 0
  %negated = sub {t} 0, %a
  %r = select i1 %negative, {t} %negated, {t} %a"""


def integer_sign(kind: PrimitiveType, t: str) -> str:
    if not kind.is_signed_integer:
        return f"%some = icmp ne {t} %a, 0\n  %r = zext i1 %some to {t}"
    bits = kind.byte_size * 8 - 1
    return f"""%minus = ashr {t} %a, {bits}
  %positive = icmp sgt {t} %a, 0
  %r = select i1 %positive, {t} 1, {t} %minus"""


@BODIES.register(Opcode.REMAINDER)
def remainder(signature: ElementSignature) -> str | None:
    """Compute the remainder. x % 0 is x, and x % -1 is 0.

    For floats it calls C's fmod, which is exact and has no vector instruction.
    """
    kind, t = signature.result, wide_type(signature.result)
    if kind.is_floating:
        return f"%r = frem {t} %a, %b"
    if not kind.is_integer:
        return None
    if not kind.is_signed_integer:
        return f"""%zero = icmp eq {t} %b, 0
  %safe = select i1 %zero, {t} 1, {t} %b
  %rest = urem {t} %a, %safe
  %r = select i1 %zero, {t} %a, {t} %rest"""
    return f"""%zero = icmp eq {t} %b, 0
  %back = icmp eq {t} %b, -1
  %special = or i1 %zero, %back
  %safe = select i1 %special, {t} 1, {t} %b
  %rest = srem {t} %a, %safe
  %r = select i1 %zero, {t} %a, {t} %rest"""


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
    kind, t = signature.result, wide_type(signature.result)
    if not kind.is_integer:
        return None
    width = int(t[1:])
    wide, unused = f"i{2 * width}", width - kind.bits
    extend, shift = ("sext", "ashr") if kind.is_signed_integer else ("zext", "lshr")
    lines = []
    for name in ("a", "b"):
        # The bits above those of a narrow integer are arbitrary.
        lines += [
            f"%{name}.up = shl {t} %{name}, {unused}",
            f"%{name}.own = {shift} {t} %{name}.up, {unused}",
            f"%{name}.wide = {extend} {t} %{name}.own to {wide}",
        ]
    return "\n  ".join(
        [
            *lines,
            f"%product = mul {wide} %a.wide, %b.wide",
            f"%high = {shift} {wide} %product, {kind.bits}",
            f"%r = trunc {wide} %high to {t}",
        ]
    )


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
