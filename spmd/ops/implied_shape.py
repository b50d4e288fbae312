"""Shapes that XLA makes from operands, whatever a text or a proto says: those of sends and what ends a transfer."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.shape import PrimitiveType, Shape, TokenShape, TupleShape, array

IGNORE_THEIR_SHAPE = frozenset({Opcode.OUTFEED, Opcode.RECV_DONE, Opcode.SEND, Opcode.SEND_DONE})


def implied_shape(opcode: Opcode, operands: Sequence[HloInstruction]) -> Shape | None:
    """Return the shape of an instruction of one of ``IGNORE_THEIR_SHAPE``; None if its operands do not determine it."""
    if opcode not in (Opcode.SEND, Opcode.RECV_DONE):
        return TokenShape()
    given = operands[0].shape if operands else None
    try:
        if opcode is Opcode.SEND and given is not None:
            return TupleShape((given, array(PrimitiveType.U32), TokenShape()))
        if isinstance(given, TupleShape) and given.elements:
            return TupleShape((given.elements[0], TokenShape()))
    except ShapeError:  # sends of sends of sends
        pass
    return None
