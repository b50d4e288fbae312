"""The operations compare and is-finite."""

from __future__ import annotations

from runtime.codegen.elements.builder import Code, Int
from runtime.codegen.elements.registry import BODIES, body_of
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType

_NO_MINUS_ZERO = (
    PrimitiveType.F8E4M3B11FNUZ,
    PrimitiveType.F8E4M3FNUZ,
    PrimitiveType.F8E5M2FNUZ,
)


@BODIES.register(Opcode.COMPARE)
def comparison(signature: ElementSignature) -> str | None:
    attrs, kind = signature.attrs, signature.operands[0]
    assert isinstance(attrs, CompareAttrs)
    direction = attrs.direction.lower()
    if kind.is_floating and attrs.type == "TOTALORDER":
        signed = direction if direction in ("eq", "ne") else f"s{direction}"
        if kind.bits >= 16:
            return body_of(
                signature,
                lambda a, b: _total_key(a.bits()).compared(signed, _total_key(b.bits())),
            )
        code = Code()  # of the stored numbers, not their values as f32
        a, b = (_byte_key(Int(code, "i8", name), kind) for name in ("%x0", "%x1"))
        return code.text(a.compared(signed, b))
    if kind.is_floating:
        condition = "une" if direction == "ne" else f"o{direction}"
    elif direction in ("eq", "ne"):
        condition = direction
    else:
        condition = f"{'s' if kind.is_signed_integer else 'u'}{direction}"
    return body_of(signature, lambda a, b: a.compared(condition, b))


def _total_key(bits: Int) -> Int:
    """Return a signed number in the total order -nan < -inf < ... < -0 < +0 < ... < inf < nan of floats by their bits.

    All bits except the sign of negative numbers are inverted.
    """
    return bits ^ (bits.signed_shift(bits.width - 1) >> 1)


def _byte_key(stored: Int, kind: PrimitiveType) -> Int:
    """Return a signed number in the total order of floats of at most 8 bits, by their stored bits.

    In formats without -0 its bits are the only nan, which is the least number; f8e8m0fnu has no sign.
    """
    if kind is PrimitiveType.F8E8M0FNU:
        return stored ^ -128
    bits = (stored << (8 - kind.bits)).signed_shift(8 - kind.bits)
    key = _total_key(bits)
    if kind not in _NO_MINUS_ZERO:
        return key
    return stored.equals(-128).select(stored.constant(-128), key - bits.signed_shift(7))


@BODIES.register(Opcode.IS_FINITE)
def is_finite(signature: ElementSignature) -> str | None:
    return body_of(signature, lambda x: (x - x).compared("ord", 0.0))
