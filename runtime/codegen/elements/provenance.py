"""Provenance of operation results before they are rounded to bf16, which may simplify the rounding."""

from __future__ import annotations

from runtime.codegen.elements.bfloat16 import Provenance
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

#: Opcodes whose result is an operand, its negative, an equally short integer, or an operand with fewer digits.
_CHOOSING = frozenset(
    {
        Opcode.ABS,
        Opcode.CEIL,
        Opcode.CLAMP,
        Opcode.FLOOR,
        Opcode.MAXIMUM,
        Opcode.MINIMUM,
        Opcode.NEGATE,
        Opcode.REDUCE_PRECISION,
        Opcode.ROUND_NEAREST_AFZ,
        Opcode.ROUND_NEAREST_EVEN,
        Opcode.SELECT,
        Opcode.SIGN,
    }
)
_ARITHMETIC = frozenset({Opcode.ADD, Opcode.DIVIDE, Opcode.MULTIPLY, Opcode.SUBTRACT})


def provenance_of(signature: ElementSignature) -> Provenance:
    """Return the provenance of a bf16 result; tests try each unary operation on all of bf16. ANYWHERE if unknown."""
    if signature.result is not PrimitiveType.BF16:
        return Provenance.ANYWHERE
    if signature.opcode is Opcode.CONVERT:
        return _of_conversion(*signature.operands)
    if any(kind.is_floating and kind is not PrimitiveType.BF16 for kind in signature.operands):
        return Provenance.ANYWHERE
    if signature.opcode in _CHOOSING:
        return Provenance.CHOSEN
    if signature.opcode in _ARITHMETIC or len(signature.operands) == 1:
        return Provenance.COMPUTED
    return Provenance.ANYWHERE


def _of_conversion(source: PrimitiveType) -> Provenance:
    """Return the provenance of a conversion. 8-bit types have no more digits than bf16; integers give no nan."""
    if source is PrimitiveType.BF16 or source.bits <= 8:
        return Provenance.CHOSEN
    return Provenance.COMPUTED if source.is_integer else Provenance.ANYWHERE
