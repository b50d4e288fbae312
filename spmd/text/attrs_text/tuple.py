"""tuple, get-tuple-element, opt-barrier."""

from __future__ import annotations

from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.text.attrs_text.registry import attrs_text

attrs_text(Opcode.TUPLE, Opcode.OPT_BARRIER)
attrs_text(
    Opcode.GET_TUPLE_ELEMENT,
    read=lambda values: TupleIndexAttrs(values.need_integer("index")),
    write=lambda out, instruction: out.add("index", instruction.attrs_as(TupleIndexAttrs).index),
)
