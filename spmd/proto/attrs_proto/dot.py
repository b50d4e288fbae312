"""dot, scaled-dot, ragged-dot."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.proto.attrs_proto.precision import read_precision, write_precision
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import DotDimensionNumbersProto, RaggedDotDimensionNumbersProto


def _read_dims(values: ProtoValues, dims: DotDimensionNumbersProto | None) -> DotAttrs:
    if dims is None:
        raise HloParseError("dot_dimension_numbers is missing")
    precisions, algorithm = read_precision(values.proto)
    return DotAttrs(
        lhs_contracting=dims.lhs_contracting_dimensions,
        rhs_contracting=dims.rhs_contracting_dimensions,
        lhs_batch=dims.lhs_batch_dimensions,
        rhs_batch=dims.rhs_batch_dimensions,
        operand_precision=precisions,
        algorithm=algorithm,
    )


def _write_dims(proto: HloInstructionProto, attrs: DotAttrs) -> DotDimensionNumbersProto:
    """Return the dimension numbers. Precision and algorithm are written to ``proto``."""
    if attrs.extra:
        raise HloParseError(f"the proto cannot hold {attrs.extra[0][0]} of {proto.opcode}")
    dims = DotDimensionNumbersProto()
    dims.lhs_contracting_dimensions = attrs.lhs_contracting
    dims.rhs_contracting_dimensions = attrs.rhs_contracting
    dims.lhs_batch_dimensions = attrs.lhs_batch
    dims.rhs_batch_dimensions = attrs.rhs_batch
    write_precision(proto, attrs.operand_precision, attrs.algorithm, 2)
    return dims


def _read_dot(values: ProtoValues) -> DotAttrs:
    return _read_dims(values, values.proto.dot_dimension_numbers)


def _write_dot(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.dot_dimension_numbers = _write_dims(proto, instruction.attrs_as(DotAttrs))


def _read_ragged_dot(values: ProtoValues) -> RaggedDotAttrs:
    ragged = values.proto.ragged_dot_dimension_numbers
    if ragged is None:
        raise HloParseError("ragged_dot_dimension_numbers is missing")
    return RaggedDotAttrs(
        _read_dims(values, ragged.dot_dimension_numbers or DotDimensionNumbersProto()),
        ragged.lhs_ragged_dimensions,
        ragged.rhs_group_dimensions,
    )


def _write_ragged_dot(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(RaggedDotAttrs)
    ragged = RaggedDotDimensionNumbersProto()
    ragged.dot_dimension_numbers = _write_dims(proto, attrs.dot)
    ragged.lhs_ragged_dimensions = attrs.lhs_ragged_dims
    ragged.rhs_group_dimensions = attrs.rhs_group_dims
    proto.ragged_dot_dimension_numbers = ragged


attrs_proto(Opcode.DOT, Opcode.SCALED_DOT, read=_read_dot, write=_write_dot)
attrs_proto(Opcode.RAGGED_DOT, read=_read_ragged_dot, write=_write_ragged_dot)
