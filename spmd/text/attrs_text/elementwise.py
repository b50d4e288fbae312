"""Elementwise operations: compare, reduce-precision, result accuracy; most have no attributes."""

from __future__ import annotations

import re

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
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter

_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_TYPES = ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
#: The order of floats as XLA writes it since the end of 2026, with or without the type.
_ORDERS = {"TOTAL": "TOTALORDER", "PARTIAL": ""}


def _read_compare(values: AttrValues) -> CompareAttrs:
    direction = values.need_word("direction", _DIRECTIONS)
    kind = values.need_word("type", _TYPES) if "type" in values else ""
    order = values.need_word("order", tuple(_ORDERS)) if "order" in values else "PARTIAL"
    return CompareAttrs(direction, _ORDERS[order] or kind)


def _write_compare(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CompareAttrs)
    out.add("direction", attrs.direction)
    out.optional("type", attrs.type)


def _read_reduce_precision(values: AttrValues) -> ReducePrecisionAttrs:
    return ReducePrecisionAttrs(
        values.need_integer("exponent_bits"), values.need_integer("mantissa_bits")
    )


def _write_reduce_precision(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ReducePrecisionAttrs)
    out.add("exponent_bits", attrs.exponent_bits)
    out.add("mantissa_bits", attrs.mantissa_bits)


_NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_BOUND = rf"(?:[ar]tol\s*=\s*{_NUMBER}|ulps\s*=\s*\d{{1,19}})"
_ACCURACY = re.compile(
    r"\{\s*(?:mode\s*=\s*(?i:default|highest)|"
    rf"tolerance\s*=\s*\{{\s*(?:{_BOUND}(?:\s*,?\s*{_BOUND})*)?\s*\}})\s*\}}"
)


def _read_accuracy(values: AttrValues) -> Attrs:
    scanner = values.pop("result_accuracy")
    if scanner is None:
        return NO_ATTRS
    found = scanner.need(_ACCURACY, "{mode=highest} or {tolerance={atol=0.1,rtol=0.2,ulps=3}}")
    scanner.finish()
    text = found.group().strip()[1:-1]
    # XLA accepts a mode in either case and prints it in lower case.
    return ResultAccuracyAttrs(text.lower() if text.lstrip().startswith("mode") else text)


def _write_accuracy(out: AttrWriter, instruction: HloInstruction) -> None:
    if isinstance(instruction.attrs, ResultAccuracyAttrs):
        out.add("result_accuracy", f"{{{instruction.attrs.text}}}")


attrs_text(Opcode.COMPARE, read=_read_compare, write=_write_compare)
attrs_text(Opcode.REDUCE_PRECISION, read=_read_reduce_precision, write=_write_reduce_precision)
attrs_text(*WITH_ACCURACY, read=_read_accuracy, write=_write_accuracy)
attrs_text(*WITHOUT_ATTRIBUTES)
