"""sort and topk."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs, TopKAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.attrs_proto.reshape import single_dimension
from spmd.proto.schema.hlo import HloInstructionProto


def _read_sort(values: ProtoValues) -> SortAttrs:
    return SortAttrs(single_dimension(values), values.proto.is_stable)


def _write_sort(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(SortAttrs)
    proto.dimensions = (attrs.dimension,)
    proto.is_stable = attrs.is_stable


def _write_topk(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    """Write a stable topk, as a text without the attribute is; protos from before 2026 do not state it."""
    attrs = instruction.attrs_as(TopKAttrs)
    proto.k = attrs.k
    proto.largest = attrs.largest
    proto.is_stable = True


attrs_proto(Opcode.SORT, read=_read_sort, write=_write_sort, callees=1)
attrs_proto(
    Opcode.TOPK,
    read=lambda values: TopKAttrs(values.proto.k, values.proto.largest),
    write=_write_topk,
)
