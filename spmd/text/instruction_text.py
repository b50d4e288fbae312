"""One instruction by the full grammar: comments, line ends anywhere, nested operands, left-out shapes."""

from __future__ import annotations

import re

from spmd.hlo.instruction import NO_ANNOTATIONS, HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.limits import MAX_NESTING
from spmd.ops.attrs import ParameterAttrs, TupleIndexAttrs
from spmd.shape import Shape, TupleShape
from spmd.shape_compatibility import compatible_bounds
from spmd.text.async_sugar import add_sugared, split_sugar
from spmd.text.attr_extents import scan_attributes
from spmd.text.attrs_text import AttrValues
from spmd.text.instruction_builder import InstructionBuilder
from spmd.text.lexer import NAME, Scanner
from spmd.text.line_text import OPCODES
from spmd.text.names import RESERVED, read_name
from spmd.text.read_context import OWN_PARENTHESES, ParsedAttrs
from spmd.text.shape_text import TYPE_NAMES

_ROOT = re.compile(r"ROOT(?![\w.\-])")
_OPCODE = re.compile(r"[a-z][a-z\d\-]*+")
#: An opcode and its opening parenthesis (``b(`` begins a buffer type).
_OPCODE_NEXT = re.compile(r"(?!b\s*+\()[a-z][a-z\d\-]*+\s*+\(")
_SHAPE_NEXT = re.compile(r"\(|[a-z]\w*+\s*+\[|b\s*+\(")
_TUPLE_INDEX = re.compile(r"#(\d{1,9})")


def read_instruction(builder: InstructionBuilder, scanner: Scanner) -> HloInstruction:
    """Read ``[ROOT] name = shape opcode(operands), attributes`` at the scanner's position."""
    is_root = scanner.match(_ROOT) is not None
    name, start = read_name(scanner, "an instruction", is_defined_here=True)
    if name in TYPE_NAMES:
        scanner.fail(f"{name!r} is a reserved word, not a name", start)
    if name in RESERVED:
        builder.defines_reserved = True
    scanner.expect("=")
    return _read_right_side(builder, scanner, name, start, is_root=is_root, depth=0)


def read_nameless_instruction(builder: InstructionBuilder, scanner: Scanner) -> HloInstruction:
    """Read ``shape opcode(operands), attributes``: a text of one instruction may leave its name out."""
    scanner.skip_space()
    return _read_right_side(builder, scanner, "root", scanner.pos, is_root=False, depth=0)


def begins_shape(scanner: Scanner) -> bool:
    """Return whether a shape comes next."""
    return _comes(scanner, _SHAPE_NEXT)


def _read_right_side(
    builder: InstructionBuilder,
    scanner: Scanner,
    name: str,
    start: int,
    *,
    is_root: bool,
    depth: int,
) -> HloInstruction:
    """Read ``shape opcode(operands), attributes``. Nested instructions (depth > 0) have no attributes and no name."""
    if depth > MAX_NESTING:
        scanner.fail(f"operands are nested deeper than {MAX_NESTING}")
    shape = None if _comes(scanner, _OPCODE_NEXT) else builder.context.shapes.read(scanner)
    word = scanner.need(_OPCODE, "an opcode")
    text = word.group()
    opcode = OPCODES.get(text)
    sugar = split_sugar(text) if opcode is None else None
    if opcode is None and sugar is None:
        scanner.fail(f"unknown opcode {text!r}", word.start())
    operands, parentheses = _read_parentheses(builder, scanner, text, depth)
    extents = scan_attributes(scanner) if depth == 0 else {}
    values = AttrValues(
        builder.context.source,
        word.start(),
        text,
        extents,
        shape,
        parentheses,
        builder.context.known,
    )
    if sugar is not None:
        return add_sugared(builder, sugar, name, start, operands, values, is_root=is_root)
    assert opcode is not None
    parsed = builder.context.parse_attributes(opcode, values)
    return builder.add(
        name or f"{text}.anon",
        start,
        opcode,
        shape,
        operands,
        parsed,
        parsed.callees,
        is_root=is_root,
        is_named=depth == 0,
    )


def _comes(scanner: Scanner, pattern: re.Pattern[str]) -> bool:
    scanner.skip_space()
    return pattern.match(scanner.text, scanner.pos, scanner.end) is not None


def _read_parentheses(
    builder: InstructionBuilder, scanner: Scanner, opcode: str, depth: int
) -> tuple[list[HloInstruction], tuple[int, int]]:
    """Return the operands, and the extent between the parentheses."""
    if not scanner.peek("("):
        scanner.fail(f"expected '(' after {opcode}, found {scanner.found()}")
    if opcode in OWN_PARENTHESES:
        start, end = scanner.balanced()
        return [], (start + 1, end - 1)
    start = scanner.pos
    scanner.expect("(")
    operands: list[HloInstruction] = []
    dropped = -1
    while not scanner.consume_if(")"):
        before = scanner.pos
        operand = _read_operand(builder, scanner, depth)
        if operand is not None:
            operands.append(operand)
        elif dropped < 0:
            dropped = before
        if not scanner.peek(")"):
            scanner.expect(",")
            if dropped < 0 and scanner.peek(")"):
                dropped = scanner.pos
    if dropped >= 0 and not (operands and _fits(opcode, len(operands))):
        scanner.pos = dropped
        scanner.fail(f"expected an operand, found {scanner.found()}")
    return operands, (start + 1, scanner.pos - 1)


def _fits(opcode: str, count: int) -> bool:
    """Return whether the opcode accepts so many operands."""
    from spmd.ops.opdef import OPS  # deferred: the op definitions are needed only here

    known = OPCODES.get(opcode)
    arity = None if known is None else OPS[known].arity
    return arity is None or arity == count


def _read_operand(
    builder: InstructionBuilder, scanner: Scanner, depth: int
) -> HloInstruction | None:
    """Read ``a``, ``%a``, ``f32[2] a``, ``a#0``, or a nested instruction with or without its shape.

    Returns None for nothing, or a shape alone: like XLA, the reader skips these if enough operands are left.
    """
    start = scanner.skip_space()
    if _comes(scanner, _OPCODE_NEXT):
        return _read_right_side(builder, scanner, "", start, is_root=False, depth=depth + 1)
    shape: Shape | None = None
    if _comes(scanner, _SHAPE_NEXT):
        shape = builder.context.shapes.read(scanner)
        if _comes(scanner, _OPCODE_NEXT):
            scanner.pos = start
            return _read_right_side(builder, scanner, "", start, is_root=False, depth=depth + 1)
    if (scanner.peek(",") or scanner.peek(")")) and not builder.creates_parameters:
        return None
    return _find_operand(builder, scanner, shape)


def _find_operand(
    builder: InstructionBuilder, scanner: Scanner, shape: Shape | None
) -> HloInstruction:
    if builder.creates_parameters and shape is not None:
        return _parameter_for(builder, scanner, shape)
    name, start = read_name(scanner, "an operand")
    operand = builder.find(name, start)
    if shape is not None and not compatible_bounds(shape, operand.shape):
        scanner.fail(
            f"operand {operand.name} is written with shape {shape}, it has {operand.shape}", start
        )
    while (index := scanner.match(_TUPLE_INDEX)) is not None:
        operand = _element(builder, scanner, operand, int(index[1]), index.start())
    return operand


def _element(
    builder: InstructionBuilder, scanner: Scanner, operand: HloInstruction, index: int, start: int
) -> HloInstruction:
    """Return ``operand#index``: an element of a tuple, written without its get-tuple-element."""
    shape = operand.shape
    if not isinstance(shape, TupleShape) or index >= len(shape.elements):
        scanner.fail(f"{operand.name} of shape {shape} has no element {index}", start)
    parsed = ParsedAttrs(TupleIndexAttrs(index), (), None, NO_ANNOTATIONS, ())
    return builder.add(
        f"{operand.name}.{index}",
        start,
        Opcode.GET_TUPLE_ELEMENT,
        shape.elements[index],
        (operand,),
        parsed,
        (),
        is_named=False,
    )


def _parameter_for(builder: InstructionBuilder, scanner: Scanner, shape: Shape) -> HloInstruction:
    """Return the parameter for an operand that is not defined, in a text of one instruction."""
    scanner.consume_if("%")
    found = scanner.match(NAME)
    number = builder.computation.num_parameters
    name = f"_{number}" if found is None else found.group()
    if name in builder.scope:
        return builder.scope[name]
    parsed = ParsedAttrs(ParameterAttrs(number), (), None, NO_ANNOTATIONS, ())
    return builder.add(name, scanner.pos, Opcode.PARAMETER, shape, (), parsed, ())
