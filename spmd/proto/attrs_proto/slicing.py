"""slice, dynamic-slice, dynamic-update-slice, pad."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DynamicSliceAttrs, PadAttrs, SliceAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto, SliceDimensionsProto
from spmd.proto.schema.xla_data import PaddingConfigProto, PaddingDimensionProto


def _read_slice(values: ProtoValues) -> SliceAttrs:
    dims = values.proto.slice_dimensions
    return SliceAttrs(
        tuple(dim.start for dim in dims),
        tuple(dim.limit for dim in dims),
        tuple(dim.stride for dim in dims),
    )


def _write_slice(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(SliceAttrs)
    dims: list[SliceDimensionsProto] = []
    for start, limit, stride in zip(attrs.starts, attrs.limits, attrs.strides, strict=True):
        dim = SliceDimensionsProto()
        dim.start, dim.limit, dim.stride = start, limit, stride
        dims.append(dim)
    proto.slice_dimensions = dims


def _read_pad(values: ProtoValues) -> PadAttrs:
    config = values.proto.padding_config
    if config is None:
        raise HloParseError("padding_config is missing")
    dims = config.dimensions
    if any(dim.interior_padding < 0 for dim in dims):
        raise HloParseError("interior padding cannot be negative")
    return PadAttrs(
        tuple(dim.edge_padding_low for dim in dims),
        tuple(dim.edge_padding_high for dim in dims),
        tuple(dim.interior_padding for dim in dims),
    )


def _write_pad(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(PadAttrs)
    dims: list[PaddingDimensionProto] = []
    for low, high, interior in zip(attrs.low, attrs.high, attrs.interior, strict=True):
        dim = PaddingDimensionProto()
        dim.edge_padding_low = low
        dim.edge_padding_high = high
        dim.interior_padding = interior
        dims.append(dim)
    config = PaddingConfigProto()
    config.dimensions = dims
    proto.padding_config = config


def _write_dynamic_slice(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.dynamic_slice_sizes = instruction.attrs_as(DynamicSliceAttrs).sizes


attrs_proto(Opcode.SLICE, read=_read_slice, write=_write_slice)
attrs_proto(Opcode.PAD, read=_read_pad, write=_write_pad)
attrs_proto(
    Opcode.DYNAMIC_SLICE,
    read=lambda values: DynamicSliceAttrs(values.proto.dynamic_slice_sizes),
    write=_write_dynamic_slice,
)
attrs_proto(Opcode.DYNAMIC_UPDATE_SLICE)
