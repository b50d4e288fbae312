"""OriginalValueProto: the arrays of the original program that an instruction's result stands for, leaf by leaf."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.limits import MAX_NESTING
from spmd.ops.checks import set_text
from spmd.proto.schema.xla_data import (
    OriginalArrayProto,
    OriginalValueElementProto,
    OriginalValueProto,
)
from spmd.shape import Shape, ShapeIndex, TupleShape
from spmd.text.lexer import Scanner, quote

_SYNTHETIC = "[synthetic_call]"


# ---- reading: the proto has leaves with their indices, the text a tree as nested as the shape
def original_value_text(proto: OriginalValueProto, shape: Shape) -> str:
    """Return the text behind ``origin=``: ``{({"v1"}, {"v2" {0}})}``."""
    if proto.is_synthetic_call:
        return f"{{{_SYNTHETIC}}}"
    arrays = {element.shape_index: element.original_array for element in proto.elements}
    return f"{{{_tree_text(arrays, shape, ())}}}"


def _tree_text(
    arrays: dict[ShapeIndex, OriginalArrayProto | None], shape: Shape, index: ShapeIndex
) -> str:
    if isinstance(shape, TupleShape):
        parts = [
            _tree_text(arrays, element, (*index, i)) for i, element in enumerate(shape.elements)
        ]
        return f"({', '.join(parts)})"
    return original_array_text(arrays.get(index))


def original_array_text(array: OriginalArrayProto | None) -> str:
    """Return ``{"v1" {0,1}}``, or ``{}``."""
    if array is None:
        return "{}"
    where = f" {set_text(array.shape_index)}" if array.shape_index else ""
    return f"{{{quote(array.instruction_name)}{where}}}"


# ---- writing
def write_original_value(text: str) -> OriginalValueProto:
    proto = OriginalValueProto()
    scanner = Scanner.of(text)
    scanner.expect("{")
    if scanner.consume_if(_SYNTHETIC):
        proto.is_synthetic_call = True
    else:
        elements: list[OriginalValueElementProto] = []
        _read_tree(scanner, (), elements)
        proto.elements = elements
    scanner.expect("}")
    scanner.finish()
    return proto


def _read_tree(
    scanner: Scanner, index: ShapeIndex, elements: list[OriginalValueElementProto]
) -> None:
    if len(index) > MAX_NESTING:
        raise HloParseError(f"original values are nested deeper than {MAX_NESTING}")
    if scanner.peek("("):
        for position, _ in enumerate(scanner.items("(", ")")):
            _read_tree(scanner, (*index, position), elements)
        return
    element = OriginalValueElementProto()
    element.shape_index = index
    element.original_array = read_original_array(scanner)
    elements.append(element)


def read_original_array(scanner: Scanner) -> OriginalArrayProto | None:
    """Read ``{"v1" {0,1}}``. Returns None for ``{}``."""
    scanner.expect("{")
    if scanner.consume_if("}"):
        return None
    array = OriginalArrayProto()
    array.instruction_name = scanner.string()
    if scanner.peek("{"):
        array.shape_index = scanner.integers()
    scanner.expect("}")
    return array
