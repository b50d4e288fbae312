"""Operations with ``dimensions``: broadcast, transpose, reverse, concatenate, dimension sizes; reshape, bitcast."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, ReshapeAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto


def single_dimension(values: ProtoValues) -> int:
    dims = values.proto.dimensions
    if len(dims) != 1:
        raise HloParseError(f"{values.proto.opcode} takes one dimension, found {len(dims)}")
    return dims[0]


def read_dimensions(values: ProtoValues) -> DimensionsAttrs:
    return DimensionsAttrs(values.proto.dimensions)


def write_dimensions(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.dimensions = instruction.attrs_as(DimensionsAttrs).dimensions


def _read_reshape(values: ProtoValues) -> ReshapeAttrs:
    dims = values.proto.dimensions
    return ReshapeAttrs(dims[0]) if dims else ReshapeAttrs()


def _write_reshape(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs
    if isinstance(attrs, ReshapeAttrs) and attrs.inferred_dimension >= 0:
        proto.dimensions = (attrs.inferred_dimension,)


attrs_proto(
    Opcode.BROADCAST,
    Opcode.TRANSPOSE,
    Opcode.REVERSE,
    Opcode.CONCATENATE,
    Opcode.GET_DIMENSION_SIZE,
    Opcode.SET_DIMENSION_SIZE,
    read=read_dimensions,
    write=write_dimensions,
)
attrs_proto(Opcode.RESHAPE, read=_read_reshape, write=_write_reshape)
attrs_proto(Opcode.BITCAST, Opcode.DYNAMIC_RESHAPE)
