"""Proto form of the attributes of each opcode in HloInstructionProto: one record per opcode, with reader and writer."""

from __future__ import annotations

from collections.abc import Callable

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.proto.implied import Implied
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.registry import Registry
from spmd.shape import Shape


@dataclass(frozen=True, slots=True)
class ProtoValues:
    """Input of an attribute reader: the instruction's message, its shape, its operands, its number of callees.

    ``implied`` counts values of the entire module.
    """

    proto: HloInstructionProto
    shape: Shape
    operands: tuple[HloInstruction, ...]
    num_callees: int
    implied: Implied


def read_nothing(_: ProtoValues) -> Attrs:
    return NO_ATTRS


def write_nothing(_: HloInstructionProto, __: HloInstruction) -> None:
    """Write nothing: the op has no attributes of its own."""


@dataclass(frozen=True, slots=True)
class AttrsProto:
    """Reader and writer of an opcode's attributes in protos. ``callees``: how many computations the opcode calls, None
    for any number.

    ``swaps_callees``: the proto names two callees in the other order than ``called_computations`` has them.
    """

    read: Callable[[ProtoValues], Attrs] = read_nothing
    write: Callable[[HloInstructionProto, HloInstruction], None] = write_nothing
    callees: int | None = 0
    swaps_callees: bool = False


ATTRS_PROTO: Registry[Opcode, AttrsProto] = Registry("attribute proto")


def attrs_proto(
    *opcodes: Opcode,
    read: Callable[[ProtoValues], Attrs] = read_nothing,
    write: Callable[[HloInstructionProto, HloInstruction], None] = write_nothing,
    callees: int | None = 0,
    swaps_callees: bool = False,
) -> None:
    """Register one record for several opcodes."""
    record = AttrsProto(read, write, callees, swaps_callees)
    for opcode in opcodes:
        ATTRS_PROTO.add(opcode, record)
