"""parameter, constant, iota, partition-id, replica-id."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConstantAttrs, IotaAttrs, ParameterAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.attrs_proto.reshape import single_dimension
from spmd.proto.literal_proto import read_literal, write_literal
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import ParameterReplicationProto
from spmd.shape import ArrayShape, Shape, TupleShape
from spmd.shape_compatibility import compatible


def _read_parameter(values: ProtoValues) -> ParameterAttrs:
    number = values.proto.parameter_number
    if number < 0:
        raise HloParseError(f"a parameter number cannot be {number}")
    replication = values.proto.parameter_replication
    if replication is None:
        return ParameterAttrs(number)
    return ParameterAttrs(number, replication.replicated_at_leaf_buffers)


def _write_parameter(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ParameterAttrs)
    proto.parameter_number = attrs.number
    if attrs.replication:
        replication = ParameterReplicationProto()
        replication.replicated_at_leaf_buffers = attrs.replication
        proto.parameter_replication = replication


def _can_be_elided(shape: Shape) -> bool:
    return isinstance(shape, TupleShape) or (isinstance(shape, ArrayShape) and shape.rank > 0)


def _read_constant(values: ProtoValues) -> ConstantAttrs:
    """Read the literal. A constant without one is elided, which the text can express for arrays and tuples only."""
    if values.proto.literal is None:
        if not _can_be_elided(values.shape):
            raise HloParseError(f"a constant of shape {values.shape} has no literal")
        return ConstantAttrs(None)
    literal = read_literal(values.proto.literal)
    if not compatible(literal.shape, values.shape):
        raise HloParseError(f"a constant of shape {values.shape} has a literal of {literal.shape}")
    return ConstantAttrs(literal)


def _write_constant(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    literal = instruction.attrs_as(ConstantAttrs).literal
    if literal is not None:
        proto.literal = write_literal(literal, instruction.shape)


def _write_iota(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.dimensions = (instruction.attrs_as(IotaAttrs).dimension,)


attrs_proto(Opcode.PARAMETER, read=_read_parameter, write=_write_parameter)
attrs_proto(Opcode.CONSTANT, read=_read_constant, write=_write_constant)
attrs_proto(Opcode.IOTA, read=lambda values: IotaAttrs(single_dimension(values)), write=_write_iota)
attrs_proto(Opcode.PARTITION_ID, Opcode.REPLICA_ID)
