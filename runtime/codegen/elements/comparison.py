"""The operations compare and is-finite."""

from __future__ import annotations

from runtime.codegen.elements.registry import BODIES
from runtime.codegen.elements.storage import wide_type
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
    direction, t = attrs.direction.lower(), wide_type(kind)
    if kind.is_floating and attrs.type == "TOTALORDER":
        return _byte_order(direction, kind) if kind.bits < 16 else _total_order(direction, t)
    if kind.is_floating:
        condition = "fcmp une" if direction == "ne" else f"fcmp o{direction}"
    elif direction in ("eq", "ne"):
        condition = f"icmp {direction}"
    else:
        condition = f"icmp {'s' if kind.is_signed_integer else 'u'}{direction}"
    return f"%c = {condition} {t} %a, %b\n  %r = zext i1 %c to i8"


def _total_order(direction: str, t: str) -> str:
    """Compare in the total order -nan < -inf < ... < -0 < +0 < ... < inf < nan.

    The bits are compared as integers after all bits except the sign of negative numbers are inverted.
    """
    bits = {"float": 32, "double": 64}[t]
    i = f"i{bits}"
    lines = []
    for x in "ab":
        lines += [
            f"%{x}_bits = bitcast {t} %{x} to {i}",
            f"%{x}_sign = ashr {i} %{x}_bits, {bits - 1}",
            f"%{x}_mask = lshr {i} %{x}_sign, 1",
            f"%{x}_key = xor {i} %{x}_bits, %{x}_mask",
        ]
    signed = direction if direction in ("eq", "ne") else f"s{direction}"
    lines += [f"%c = icmp {signed} {i} %a_key, %b_key", "%r = zext i1 %c to i8"]
    return "\n  ".join(lines)


def _byte_order(direction: str, kind: PrimitiveType) -> str:
    """Compare floats of at most 8 bits in the total order by their stored bits, not by their values as f32.

    In formats without -0 its bits are the only nan, which is the least number; f8e8m0fnu has no sign.
    """
    lines = []
    for x, stored in (("a", "%x0"), ("b", "%x1")):
        if kind is PrimitiveType.F8E8M0FNU:
            lines.append(f"%{x}_key = xor i8 {stored}, -128")
            continue
        lines += [
            f"%{x}_up = shl i8 {stored}, {8 - kind.bits}",
            f"%{x}_bits = ashr i8 %{x}_up, {8 - kind.bits}",
            f"%{x}_sign = ashr i8 %{x}_bits, 7",
            f"%{x}_mask = lshr i8 %{x}_sign, 1",
        ]
        if kind not in _NO_MINUS_ZERO:
            lines.append(f"%{x}_key = xor i8 %{x}_bits, %{x}_mask")
            continue
        lines += [
            f"%{x}_turned = xor i8 %{x}_bits, %{x}_mask",
            f"%{x}_above = sub i8 %{x}_turned, %{x}_sign",
            f"%{x}_nan = icmp eq i8 {stored}, -128",
            f"%{x}_key = select i1 %{x}_nan, i8 -128, i8 %{x}_above",
        ]
    signed = direction if direction in ("eq", "ne") else f"s{direction}"
    lines += [f"%c = icmp {signed} i8 %a_key, %b_key", "%r = zext i1 %c to i8"]
    return "\n  ".join(lines)


@BODIES.register(Opcode.IS_FINITE)
def is_finite(signature: ElementSignature) -> str | None:
    t = wide_type(signature.operands[0])
    return f"""%none = fsub {t} %a, %a
  %c = fcmp ord {t} %none, %none
  %r = zext i1 %c to i8"""
