"""Bitwise logic and selection."""

from __future__ import annotations

from runtime.codegen.elements.registry import BODIES
from runtime.codegen.elements.storage import wide_type
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

_BITWISE = {Opcode.AND: "and", Opcode.OR: "or", Opcode.XOR: "xor"}


@BODIES.register(*_BITWISE)
def bitwise(signature: ElementSignature) -> str | None:
    if signature.result.is_floating:
        return None
    return f"%r = {_BITWISE[signature.opcode]} {wide_type(signature.result)} %a, %b"


@BODIES.register(Opcode.NOT)
def complement(signature: ElementSignature) -> str | None:
    ones = 1 if signature.result is PrimitiveType.PRED else -1
    return f"%r = xor {wide_type(signature.result)} %a, {ones}"


@BODIES.register(Opcode.SELECT)
def selection(signature: ElementSignature) -> str | None:
    t = wide_type(signature.result)
    return f"%chosen = icmp ne i8 %a, 0\n  %r = select i1 %chosen, {t} %b, {t} %c"
