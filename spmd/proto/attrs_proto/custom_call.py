"""custom-call."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.proto.attrs_proto.aliasing import read_aliasing, write_aliasing
from spmd.proto.attrs_proto.precision import read_precision, write_precision
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.enums import API_VERSIONS, CONVOLUTION_KINDS, PADDING_TYPES, SCHEDULES
from spmd.proto.literal_proto import read_literal, write_literal
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.shape_proto import read_shape, write_shape
from spmd.proto.window_proto import (
    read_convolution_dims,
    read_window,
    write_convolution_dims,
    write_window,
)
from spmd.text.attrs_text.convolution import format_dim_labels, read_dim_labels
from spmd.text.lexer import Scanner

#: Versions that a text omits.
_PLAIN_VERSIONS = ("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL")


def _read_custom_call(values: ProtoValues) -> CustomCallAttrs:
    proto = values.proto
    constraints = tuple(map(read_shape, proto.operand_shapes_with_layout))
    version = API_VERSIONS.value(proto.custom_call_api_version)
    return CustomCallAttrs(
        target=proto.custom_call_target,
        has_side_effect=proto.custom_call_has_side_effect,
        api_version="" if version in _PLAIN_VERSIONS else version,
        schedule=SCHEDULES.value(proto.custom_call_schedule),
        operand_layout_constraints=constraints if proto.constrain_layout else None,
        output_to_operand_aliasing=read_aliasing(proto),
        literal=None if proto.literal is None else read_literal(proto.literal),
        window=None if proto.window is None else read_window(proto.window),
        extra=_read_extra(proto),
    )


def _read_extra(proto: HloInstructionProto) -> tuple[tuple[str, str], ...]:
    """Read the attributes of convolution-like calls, as text in the order in which it is printed."""
    texts: dict[str, str] = {}
    if proto.convolution_dimension_numbers is not None:
        numbers = read_convolution_dims(proto.convolution_dimension_numbers)
        texts["dim_labels"] = format_dim_labels(numbers)
    if proto.feature_group_count > 1:
        texts["feature_group_count"] = str(proto.feature_group_count)
    if proto.batch_group_count > 1:
        texts["batch_group_count"] = str(proto.batch_group_count)
    texts["padding_type"] = PADDING_TYPES.value(proto.padding_type)
    precisions, _ = read_precision(proto)
    texts["operand_precision"] = f"{{{','.join(precisions)}}}" if precisions else ""
    texts["convolution_kind"] = CONVOLUTION_KINDS.value(proto.conv_kind)
    return tuple((name, text) for name, text in texts.items() if text)


def _write_custom_call(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CustomCallAttrs)
    proto.custom_call_target = attrs.target
    proto.custom_call_has_side_effect = attrs.has_side_effect
    version = attrs.api_version or "API_VERSION_ORIGINAL"
    proto.custom_call_api_version = API_VERSIONS.number(version)
    proto.custom_call_schedule = SCHEDULES.number(
        "" if attrs.schedule == "SCHEDULE_NONE" else attrs.schedule
    )
    if attrs.operand_layout_constraints is not None:
        proto.constrain_layout = True
        proto.operand_shapes_with_layout = [
            write_shape(shape) for shape in attrs.operand_layout_constraints
        ]
    write_aliasing(proto, attrs.output_to_operand_aliasing)
    if attrs.literal is not None:
        proto.literal = write_literal(attrs.literal, attrs.literal.shape)
    if attrs.window is not None:
        proto.window = write_window(attrs.window)
    _write_extra(proto, dict(attrs.extra), instruction.num_operands)


def _write_extra(proto: HloInstructionProto, extra: dict[str, str], operands: int) -> None:
    if "dim_labels" in extra:
        numbers = read_dim_labels(Scanner.of(extra["dim_labels"]))
        proto.convolution_dimension_numbers = write_convolution_dims(numbers)
    proto.feature_group_count = _count(extra.get("feature_group_count", "1"))
    proto.batch_group_count = _count(extra.get("batch_group_count", "1"))
    padding = extra.get("padding_type", "")
    proto.padding_type = PADDING_TYPES.number("" if padding == "PADDING_INVALID" else padding)
    listed = extra.get("operand_precision", "{}").strip("{} ")
    precisions = tuple(word.strip() for word in listed.split(",")) if listed else ()
    write_precision(proto, precisions, "", operands)
    proto.conv_kind = CONVOLUTION_KINDS.number(extra.get("convolution_kind", ""))


def _count(text: str) -> int:
    if not text.isdigit():
        raise HloParseError(f"expected a group count, found {text!r}")
    return int(text)


attrs_proto(Opcode.CUSTOM_CALL, read=_read_custom_call, write=_write_custom_call, callees=None)
