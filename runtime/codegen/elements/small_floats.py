"""Floats of at most 8 bits, stored one per byte: conversions to and from f32 without tables or branches.

The results are bitwise those of ml_dtypes.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import Bool, Code, Float, Int
from runtime.codegen.elements.common import float_of_small
from runtime.codegen.elements.formats import F32
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class Ends(Enum):
    """Special codes of a format. They also decide into which code a number that is too large is rounded."""

    IEEE = "infinity, then nan"
    ONE_NAN = "nan of all ones"
    NAN_FOR_MINUS_ZERO = "one nan, where -0 would be"
    NUMBERS_ALONE = "the largest number"


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """Format with ``exponent`` and ``mantissa`` bits, an exponent bias, and special codes."""

    exponent: int
    mantissa: int
    bias: int
    ends: Ends

    @property
    def sign_bit(self) -> int:
        """Return the number of the sign bit."""
        return self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        """Return the code of infinity in a format with IEEE's special codes."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def last(self) -> int:
        """Return the largest code without a sign."""
        return (1 << self.sign_bit) - 1


FORMATS = {
    PrimitiveType.F8E5M2: SmallFloat(5, 2, 15, Ends.IEEE),
    PrimitiveType.F8E4M3: SmallFloat(4, 3, 7, Ends.IEEE),
    PrimitiveType.F8E3M4: SmallFloat(3, 4, 3, Ends.IEEE),
    PrimitiveType.F8E4M3FN: SmallFloat(4, 3, 7, Ends.ONE_NAN),
    PrimitiveType.F8E4M3B11FNUZ: SmallFloat(4, 3, 11, Ends.NAN_FOR_MINUS_ZERO),
    PrimitiveType.F8E5M2FNUZ: SmallFloat(5, 2, 16, Ends.NAN_FOR_MINUS_ZERO),
    PrimitiveType.F8E4M3FNUZ: SmallFloat(4, 3, 8, Ends.NAN_FOR_MINUS_ZERO),
    PrimitiveType.F4E2M1FN: SmallFloat(2, 1, 1, Ends.NUMBERS_ALONE),
    PrimitiveType.F6E2M3FN: SmallFloat(2, 3, 1, Ends.NUMBERS_ALONE),
    PrimitiveType.F6E3M2FN: SmallFloat(3, 2, 3, Ends.NUMBERS_ALONE),
}
_F32_INFINITY = 0x7F800000
_F32_NAN = 0x7FC00000


@cache
def conversions(kind: PrimitiveType) -> tuple[str, str]:
    """Return the lines of both conversions of ``kind``.

    The first compute %y, a float, from %x, a byte; the second compute %y, a byte, from %x, a float.
    """
    widening, narrowing = Code(), Code()
    byte, number = Int(widening, "i8", "%x"), Float(narrowing, F32, "%x")
    if kind is PrimitiveType.F8E8M0FNU:
        wide, small = _power_of_two(byte), _exponent(number)
    else:
        wide, small = _widened(byte, FORMATS[kind]), _narrowed(number, FORMATS[kind])
    return widening.text(wide, "%y"), narrowing.text(small, "%y")


def _widened(byte: Int, fmt: SmallFloat) -> Float:
    """Convert to f32. Denormals are converted from integers, because a product with their bits as an f32 is slow."""
    x = byte.resized("i32")
    size = x & fmt.last
    normal = (size << (F32.mantissa - fmt.mantissa)) + ((F32.bias - fmt.bias) << F32.mantissa)
    denormal = float_of_small(size, F32) * 2.0 ** (1 - fmt.bias - fmt.mantissa)
    bits = size.compared("ult", 1 << fmt.mantissa).select(denormal.bits(), normal)
    if fmt.ends is Ends.IEEE:
        beyond = size.compared("eq", fmt.infinity).select(x.constant(_F32_INFINITY), _F32_NAN)
        bits = size.compared("uge", fmt.infinity).select(beyond, bits)
    elif fmt.ends is Ends.ONE_NAN:
        bits = size.compared("eq", fmt.last).select(x.constant(_F32_NAN), bits)
    sign = ((x >> fmt.sign_bit) & 1) << 31
    if fmt.ends is Ends.NAN_FOR_MINUS_ZERO:
        bits = x.compared("eq", 1 << fmt.sign_bit).select(x.constant(_F32_NAN), bits)
    return (bits | sign).as_float(F32)


def _narrowed(x: Float, fmt: SmallFloat) -> Int:
    """Round to nearest, ties to even. A carry out of the mantissa yields the next exponent or a special code."""
    bits = x.bits()
    size, sign = bits & 0x7FFFFFFF, bits >> 31
    drop = F32.mantissa - fmt.mantissa
    odd = (size >> drop) & 1
    rounded = (size + odd + ((1 << (drop - 1)) - 1)) >> drop
    normal = rounded - ((F32.bias - fmt.bias) << fmt.mantissa)
    # The last place of denormals has a fixed value: a sum with 2^23 times this value is rounded to a
    # multiple of it.
    magic = 1.5 * 2.0 ** (F32.mantissa + 1 - fmt.bias - fmt.mantissa)
    denormal = (x.abs() + magic).bits() - F32.bits_of(magic)
    least = F32.bits_of(2.0 ** (1 - fmt.bias))
    code = size.compared("ult", least).select(denormal, normal)
    return _with_ends(code, sign, size.compared("ugt", _F32_INFINITY), fmt).resized("i8")


def _with_ends(code: Int, sign: Int, nan: Bool, fmt: SmallFloat) -> Int:
    """Return the final code, with sign, nan and overflow, of the rounded ``code``, which may exceed the largest."""
    if fmt.ends is Ends.NAN_FOR_MINUS_ZERO:
        none = 1 << fmt.sign_bit
        negative = code.compared("eq", 0).select(code, code | (sign << fmt.sign_bit))
        too_large = code.compared("ugt", fmt.last)
        return (nan | too_large).select(code.constant(none), negative)
    most = fmt.infinity if fmt.ends is Ends.IEEE else fmt.last
    code = code.compared("ugt", most).select(code.constant(most), code)
    if fmt.ends is Ends.NUMBERS_ALONE:
        # ml_dtypes converts a nan to a zero of the opposite sign.
        code = nan.select(code.constant(0), code)
        sign = nan.select(sign ^ 1, sign)
    else:
        quiet = fmt.infinity | (1 << (fmt.mantissa - 1)) if fmt.ends is Ends.IEEE else fmt.last
        code = nan.select(code.constant(quiet), code)
    return code | (sign << fmt.sign_bit)


def _power_of_two(byte: Int) -> Float:
    """Convert f8e8m0fnu, 2^(x - 127), to f32, where the smallest is denormal. The code 255 is nan."""
    x = byte.resized("i32")
    bits = x.compared("eq", 0).select(x.constant(1 << 22), x << F32.mantissa)
    return x.compared("eq", 255).select(x.constant(_F32_NAN), bits).as_float(F32)


def _exponent(x: Float) -> Int:
    """Convert to f8e8m0fnu, the nearest power of two. Zero, negative and too large numbers become nan.

    Ties are rounded to the larger power, except below 2^-126.
    """
    bits = x.bits()
    tie = bits.compared("ult", 1 << F32.mantissa).select(bits.constant((1 << 22) - 1), 1 << 22)
    code = (bits + tie) >> F32.mantissa
    none = bits.compared("sle", 0) | code.compared("ugt", 255)
    return none.select(code.constant(255), code).resized("i8")
