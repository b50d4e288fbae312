"""bf16, the upper half of an f32: to f32 and back, rounded to nearest, ties to even."""

from __future__ import annotations

from enum import Enum
from functools import cache

from runtime.codegen.elements.builder import F32, Code, Float, Int

_LOWER = 16
_QUIET = 0x40_0000


class Origin(Enum):
    """Where an f32 comes from that becomes a bf16, which decides on what is left to do.

    Rounding is an addition, whose carry would make infinity or -0 of a nan with ones in the lower half.
    """

    ANYWHERE = "any number, nan of every payload"
    COMPUTED = "of bf16 by f32 operations: a nan is the processor's own or an operand's, their lower halves zero"
    CHOSEN = "a number of bf16"


@cache
def widening() -> str:
    """Lines that make %y, a float, of %x, an i16."""
    code = Code()
    bits = Int(code, "i16", "%x").resized("i32") << _LOWER
    return code.text(bits.as_float(F32), "%y")


@cache
def narrowing(origin: Origin) -> str:
    """Lines that do the reverse."""
    code = Code()
    x = Float(code, F32, "%x")
    bits = x.bits()
    if origin is not Origin.CHOSEN:
        odd = (bits >> _LOWER) & 1
        near = bits + odd + ((1 << (_LOWER - 1)) - 1)
        bits = near if origin is Origin.COMPUTED else x.is_nan().select(bits | _QUIET, near)
    return code.text((bits >> _LOWER).resized("i16"), "%y")
