"""custom-call."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.literal import Literal
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import Shape, TupleShape, as_array
from spmd.text.alias_text import format_output_to_operand, read_output_to_operand
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter
from spmd.text.lexer import Scanner, quote
from spmd.text.literal_text import format_literal, read_literal
from spmd.text.shape_text import ShapeReader
from spmd.text.window_text import format_window, read_window

_VERBATIM = (
    "dim_labels",
    "feature_group_count",
    "batch_group_count",
    "padding_type",
    "operand_precision",
    "convolution_kind",
)

_SCHEDULES = ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")
_API_VERSIONS = (
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


def _read_shapes(scanner: Scanner) -> tuple[Shape, ...]:
    """Read ``{f32[2]{0}, (f32[], f32[])}``."""
    reader = ShapeReader()
    return tuple(reader.read(scanner) for _ in scanner.items())


def _read_shaped_literal(scanner: Scanner) -> Literal | None:
    """Read ``s32[2]{0} {1, 2}`` or ``( s32[2]{0} {1,2}, pred[] true )``."""
    if not scanner.peek("("):
        return read_literal(scanner, ShapeReader().read(scanner))
    elements: list[Literal] = []
    for _ in scanner.items("(", ")"):
        element = _read_shaped_literal(scanner)
        if element is None:
            scanner.fail("the literal of a custom-call cannot be elided")
        elements.append(element)
    return Literal.tuple_of(tuple(elements))


def format_shaped_literal(literal: Literal) -> str:
    if isinstance(literal.shape, TupleShape):
        return f"( {', '.join(map(format_shaped_literal, literal.elements))} )"
    # For XLA, a shape without a layout has rank 0 here.
    shape = as_array(literal.shape).with_default_layout()
    return f"{shape} {format_literal(literal)}"


def _api_version(values: AttrValues) -> str:
    return values.need_word("api_version", _API_VERSIONS) if "api_version" in values else ""


def _read_custom_call(values: AttrValues) -> CustomCallAttrs:
    if "called_computations" in values:
        values.callee_list("called_computations")
    elif "to_apply" in values:
        values.callee("to_apply")
    constraints: tuple[Shape, ...] | None = values.read(
        "operand_layout_constraints", _read_shapes, None
    )
    window = values.need_read("window", read_window) if "window" in values else None
    return CustomCallAttrs(
        target=values.need_read("custom_call_target", Scanner.string),
        has_side_effect=values.flag("custom_call_has_side_effect"),
        api_version=_api_version(values),
        schedule=values.need_word("schedule", _SCHEDULES) if "schedule" in values else "",
        operand_layout_constraints=constraints,
        output_to_operand_aliasing=values.read(
            "output_to_operand_aliasing", read_output_to_operand, ()
        ),
        literal=values.read("literal", _read_shaped_literal, None),
        window=window,
        extra=values.verbatim(*_VERBATIM),
    )


def _write_custom_call(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CustomCallAttrs)
    if attrs.window is not None:
        out.add("window", format_window(attrs.window))
    out.verbatim(attrs.extra)
    out.add("custom_call_target", quote(attrs.target))
    if attrs.operand_layout_constraints is not None:
        out.add(
            "operand_layout_constraints",
            f"{{{', '.join(map(str, attrs.operand_layout_constraints))}}}",
        )
    out.flag("custom_call_has_side_effect", attrs.has_side_effect)
    if attrs.literal is not None:
        out.add("literal", format_shaped_literal(attrs.literal))
    if attrs.output_to_operand_aliasing:
        out.add(
            "output_to_operand_aliasing", format_output_to_operand(attrs.output_to_operand_aliasing)
        )
    out.optional("schedule", attrs.schedule)
    out.optional("api_version", attrs.api_version)
    if instruction.called_computations:
        out.callee_list("called_computations", instruction.called_computations)


attrs_text(Opcode.CUSTOM_CALL, read=_read_custom_call, write=_write_custom_call)
