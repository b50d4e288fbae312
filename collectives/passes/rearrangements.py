"""Values that are forms of others: reshaped, transposed, copied, and so on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs

#: Ops that keep the bits of a value and can be undone.
PLACING: Final = (Opcode.RESHAPE, Opcode.TRANSPOSE, Opcode.COPY)


def line_of(x: HloInstruction, opcodes: Collection[Opcode]) -> list[HloInstruction]:
    """Return ``x``, its operand, the operand's operand, and so on, as long as the opcodes are in ``opcodes`` and the
    operand is no scalar.
    """
    line = [x]
    while x.opcode in opcodes and x.operand(0).dims:
        x = x.operand(0)
        line.append(x)
    return line


def bits_of(line: list[HloInstruction]) -> Iterator[HloInstruction]:
    """Yield the values of ``line`` that hold exactly the bits of line[0]."""
    for value, source in zip(line, (*line[1:], None), strict=True):
        yield value
        if source is None or value.opcode not in PLACING:
            return


def one_way(line: list[HloInstruction]) -> int:
    """Return the number of forms in ``line`` that cannot be undone."""
    return sum(op.opcode not in PLACING for op in line[:-1])


def undoing_order(transpose: HloInstruction) -> tuple[int, ...]:
    """Return the dimensions of the transpose that is the inverse of ``transpose``."""
    order = transpose.attrs_as(DimensionsAttrs).dimensions
    return tuple(map(order.index, range(len(order))))
