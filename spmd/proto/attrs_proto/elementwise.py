"""Elementwise operations; compare, reduce-precision and the functions with result_accuracy have attributes."""

from __future__ import annotations

import math

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import (
    NO_ATTRS,
    Attrs,
    CompareAttrs,
    Opcode,
    ReducePrecisionAttrs,
    ResultAccuracyAttrs,
)
from spmd.ops.elementwise_ops import WITH_ACCURACY, WITHOUT_ATTRIBUTES
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.enums import ACCURACY_MODES
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import ResultAccuracyProto, ToleranceProto
from spmd.shape import ArrayShape
from spmd.text.lexer import Scanner

_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
#: Opcodes that HLO had before compare; XLA's reader accepts them, too.
OLD_COMPARISONS = {
    "equal-to": "EQ",
    "not-equal-to": "NE",
    "greater-than-or-equal-to": "GE",
    "greater-than": "GT",
    "less-than-or-equal-to": "LE",
    "less-than": "LT",
}
_TYPES = ("", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")


def _read_compare(values: ProtoValues) -> CompareAttrs:
    proto = values.proto
    direction = OLD_COMPARISONS.get(proto.opcode, proto.comparison_direction)
    kind = proto.comparison_type
    if not kind and proto.comparison_order == "TOTAL" and _default_type(values) == "FLOAT":
        kind = "TOTALORDER"
    if direction not in _DIRECTIONS:
        raise HloParseError(f"unknown comparison direction {direction!r}")
    if kind not in _TYPES:
        raise HloParseError(f"unknown comparison type {kind!r}")
    return CompareAttrs(direction, "" if kind == _default_type(values) else kind)


def _default_type(values: ProtoValues) -> str:
    """Return the type that the operands imply. The proto always states it; texts omit it."""
    shape = values.operands[0].shape if values.operands else None
    if not isinstance(shape, ArrayShape):
        return ""
    kind = shape.element_type
    if kind.is_floating or kind.is_complex:
        return "FLOAT"
    return "SIGNED" if kind.is_signed_integer else "UNSIGNED"


def _write_compare(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CompareAttrs)
    proto.comparison_direction = attrs.direction
    proto.comparison_type = attrs.type


def _write_reduce_precision(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ReducePrecisionAttrs)
    proto.exponent_bits = attrs.exponent_bits
    proto.mantissa_bits = attrs.mantissa_bits


def _read_accuracy(values: ProtoValues) -> Attrs:
    """Read the accuracy. The default mode, which XLA writes out, counts as absent."""
    proto = values.proto.result_accuracy
    if proto is None:
        return NO_ATTRS
    tolerance = proto.tolerance
    if tolerance is not None:
        if not math.isfinite(tolerance.atol + tolerance.rtol) or tolerance.ulps < 0:
            raise HloParseError("a tolerance is not finite, or its ulps are negative")
        numbers = (f"{tolerance.atol:.9g}", f"{tolerance.rtol:.9g}", str(tolerance.ulps))
        parts = ",".join(
            f"{name}={number}" for name, number in zip(_TOLERANCES, numbers, strict=True)
        )
        return ResultAccuracyAttrs(f"tolerance={{{parts}}}")
    mode = ACCURACY_MODES.value(proto.mode or 0)
    return NO_ATTRS if mode == "default" else ResultAccuracyAttrs(f"mode={mode}")


_TOLERANCES = ("atol", "rtol", "ulps")


def _write_accuracy(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    if not isinstance(instruction.attrs, ResultAccuracyAttrs):
        return
    accuracy = ResultAccuracyProto()
    scanner = Scanner.of(instruction.attrs.text)
    if scanner.consume_if("tolerance"):
        scanner.expect("=")
        accuracy.tolerance = _tolerance_of_text(scanner)
    else:
        scanner.expect("mode")
        scanner.expect("=")
        accuracy.mode = ACCURACY_MODES.number(scanner.name("a mode"))
    proto.result_accuracy = accuracy


def _tolerance_of_text(scanner: Scanner) -> ToleranceProto:
    """Read ``{atol=0.1,rtol=0.2,ulps=3}``."""
    start, end = scanner.balanced()
    proto = ToleranceProto()
    try:
        for part in scanner.text[start + 1 : end - 1].split(","):
            name, _, number = part.partition("=")
            if name.strip() == "ulps":
                proto.ulps = int(number)
            elif name.strip() == "atol":
                proto.atol = float(number)
            else:
                proto.rtol = float(number)
    except ValueError as error:
        raise HloParseError(f"the proto cannot hold {scanner.text[start:end]}") from error
    return proto


attrs_proto(Opcode.COMPARE, read=_read_compare, write=_write_compare)
attrs_proto(
    Opcode.REDUCE_PRECISION,
    read=lambda values: ReducePrecisionAttrs(
        values.proto.exponent_bits, values.proto.mantissa_bits
    ),
    write=_write_reduce_precision,
)
attrs_proto(*WITH_ACCURACY, read=_read_accuracy, write=_write_accuracy)
attrs_proto(*WITHOUT_ATTRIBUTES)
