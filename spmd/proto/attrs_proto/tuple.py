"""tuple, get-tuple-element, opt-barrier."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.proto.attrs_proto.registry import attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto


def _write_element(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.tuple_index = instruction.attrs_as(TupleIndexAttrs).index


attrs_proto(Opcode.TUPLE, Opcode.OPT_BARRIER)
attrs_proto(
    Opcode.GET_TUPLE_ELEMENT,
    read=lambda values: TupleIndexAttrs(values.proto.tuple_index),
    write=_write_element,
)
