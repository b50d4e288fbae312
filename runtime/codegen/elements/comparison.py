"""compare and is-finite."""

from __future__ import annotations

from runtime.codegen.elements.registry import BODIES, ElementSignature
from runtime.codegen.elements.storage import wide_type
from spmd.hlo import Opcode
from spmd.ops.attrs import CompareAttrs


@BODIES.register(Opcode.COMPARE)
def comparison(signature: ElementSignature) -> str | None:
    attrs, kind = signature.attrs, signature.operands[0]
    assert isinstance(attrs, CompareAttrs)
    direction, t = attrs.direction.lower(), wide_type(kind)
    if kind.is_floating and attrs.type == "TOTALORDER":
        if kind.bits < 16:  # their one nan has a place of its own in the order
            return None
        return _total_order(direction, t)
    if kind.is_floating:
        condition = "fcmp une" if direction == "ne" else f"fcmp o{direction}"
    elif direction in ("eq", "ne"):
        condition = f"icmp {direction}"
    else:
        condition = f"icmp {'s' if kind.is_signed_integer else 'u'}{direction}"
    return f"%c = {condition} {t} %a, %b\n  %r = zext i1 %c to i8"


def _total_order(direction: str, t: str) -> str:
    """-nan < -inf < ... < -0 < +0 < ... < inf < nan: as integers, negative ones' other bits turned over."""
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


@BODIES.register(Opcode.IS_FINITE)
def is_finite(signature: ElementSignature) -> str | None:
    t = wide_type(signature.operands[0])
    return f"""%none = fsub {t} %a, %a
  %c = fcmp ord {t} %none, %none
  %r = zext i1 %c to i8"""
