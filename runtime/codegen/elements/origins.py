"""What is known of operations' results before they become bf16: how little rounding they take."""

from __future__ import annotations

from runtime.codegen.elements.bfloat16 import Origin
from runtime.codegen.elements.registry import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

#: An operand, one with another sign, an integer that is as short, or fewer of an operand's digits.
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


def origin_of(signature: ElementSignature) -> Origin:
    """Of a result in bf16; tests try each operation of one operand on all of bf16. Others are not told apart."""
    if signature.result is not PrimitiveType.BF16:
        return Origin.ANYWHERE
    if signature.opcode is Opcode.CONVERT:
        return _of_conversion(*signature.operands)
    if any(kind.is_floating and kind is not PrimitiveType.BF16 for kind in signature.operands):
        return Origin.ANYWHERE
    if signature.opcode in _CHOOSING:
        return Origin.CHOSEN
    if signature.opcode in _ARITHMETIC or len(signature.operands) == 1:
        return Origin.COMPUTED
    return Origin.ANYWHERE


def _of_conversion(source: PrimitiveType) -> Origin:
    """Types of 8 bits have no more digits than bf16, and f8e8m0fnu no smaller number; integers no nan."""
    if source is PrimitiveType.BF16 or source.bits <= 8:
        return Origin.CHOSEN
    return Origin.COMPUTED if source.is_integer else Origin.ANYWHERE
