"""The common case: an instruction on a line of its own, read by one pattern and tables of known texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.shape import Shape
from spmd.shape_compatibility import compatible
from spmd.text.attr_extents import nested_pattern, split_line
from spmd.text.attrs_text import AttrValues, Callee
from spmd.text.instruction_builder import InstructionBuilder
from spmd.text.lexer import Scanner
from spmd.text.names import RESERVED
from spmd.text.read_context import OWN_PARENTHESES, ParsedAttrs, ReadContext

OPCODES = {opcode.value: opcode for opcode in Opcode}

#: Root, name, shape, opcode, parentheses, attributes. Next must come another instruction or the end of the body.
_LINE = re.compile(
    r"\s*+(ROOT )?%?([A-Za-z_][\w.\-]*+) = "
    rf"([a-z]\w*+\[[^\s()\"'/]*+|{nested_pattern('(', ')', 2)}) "
    r"([a-z][a-z\d\-]*+)\(([^()\n\"']*+(?>(?:\([^()\n\"']*+\)[^()\n\"']*+)*))\)(?:, ([^\n]*+))?\n(?=\s*+[\w%}])",
    re.ASCII,
)
#: The computation that an attribute names. The other attributes are cached without it.
_CALLEE_NAME = re.compile(r"(?<![\w\-])(?:to_apply|calls)=%?([A-Za-z_][\w.\-]*+)(?=,|\Z)")
_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")


def read_line(builder: InstructionBuilder, pos: int, end: int) -> int:
    """Read the instruction whose line begins at ``pos``. Returns where the next one begins, 0 if it is not simple.

    That is no error: the scanner then reads the same text by the full grammar.
    """
    context = builder.context
    found = _LINE.match(context.source.text, pos, end)
    if found is None:
        return 0
    root, name, shape_text, opcode_text, inner, attr_text = found.groups()
    opcode = OPCODES.get(opcode_text)
    scope = builder.scope
    if opcode is None or name in scope or name in RESERVED or builder.defines_reserved:
        return 0
    shape = context.shapes.of_text(shape_text)
    if shape is None:
        shape = _read_shape(context, found.start(3), found.end(3), shape_text)
    operands: Sequence[HloInstruction] = ()
    key: tuple[str | None, ...]
    if opcode_text in OWN_PARENTHESES:
        key = (opcode_text, attr_text, inner, shape_text)
    else:
        key = (opcode_text, attr_text)
        if inner:
            names = inner.replace("%", "") if "%" in inner else inner
            try:
                operands = [scope[operand] for operand in names.split(", ")]
            except KeyError:
                shaped = _shaped_operands(builder, names)
                if shaped is None:
                    return 0
                operands = shaped
    parsed = context.parsed.get(key)
    callees: tuple[Callee, ...]
    if parsed is not None:
        callees = parsed.callees
    else:
        found_attrs = _attributes(context, found, key, opcode, shape)
        if found_attrs is None:
            return 0
        parsed, callees = found_attrs
    start = found.start(2)
    builder.add(name, start, opcode, shape, operands, parsed, callees, is_root=root is not None)
    return found.end()


def _attributes(
    context: ReadContext,
    found: re.Match[str],
    key: tuple[str | None, ...],
    opcode: Opcode,
    shape: Shape,
) -> tuple[ParsedAttrs, tuple[Callee, ...]] | None:
    """Return attributes whose text was not read before, or only with another callee. Returns None if a full parse is
    needed.

    Quoted text may contain anything, so no callee is cut out of attributes with quotes.
    """
    attr_text = found[6]
    callee = None
    if attr_text is not None and '"' not in attr_text:
        callee = _CALLEE_NAME.search(attr_text)
    if callee is not None and callee[1] not in RESERVED:
        start, end = callee.span(1)
        key = (opcode.value, attr_text[:start], attr_text[end:])
        known = context.parsed.get(key)
        if known is not None and len(known.callees) == 1:
            at = found.start(6)
            return known, (Callee(callee[1], at + start, at + end),)
    parsed = _parse(context, found, opcode, shape)
    if parsed is None:
        return None
    context.parsed[key] = parsed
    return parsed, parsed.callees


def _parse(
    context: ReadContext, found: re.Match[str], opcode: Opcode, shape: Shape
) -> ParsedAttrs | None:
    attr_text = found[6]
    extents = {} if attr_text is None else split_line(attr_text, found.start(6))
    if extents is None or (attr_text is not None and not extents):  # elements on the next line
        return None
    values = AttrValues(
        context.source,
        found.start(4),
        opcode.value,
        extents,
        shape,
        found.span(5),
        context.known,
    )
    return context.parse_attributes(opcode, values)


def _read_shape(context: ReadContext, start: int, end: int, text: str) -> Shape:
    shape = Scanner(context.source, start, end).entire(context.shapes.read)
    context.shapes.record(text, shape)
    return shape


def _shaped_operands(builder: InstructionBuilder, inner: str) -> list[HloInstruction] | None:
    """Read ``f32[2]{0} a, /*index=5*/b``, each shape as defined. Returns None if the text contains anything else."""
    if "/*" in inner:
        inner = _INDEX_COMMENT.sub("", inner)
    operands: list[HloInstruction] = []
    for piece in inner.split(", "):
        written, _, name = piece.rpartition(" ")
        operand = builder.scope.get(name)
        if operand is None or (not written and len(name) != len(piece)):
            return None
        if written:
            shape = builder.context.shapes.of_text(written)
            if shape is None or (
                shape is not operand.shape and not compatible(shape, operand.shape)
            ):
                return None
        operands.append(operand)
    return operands
