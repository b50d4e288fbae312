"""One instruction: a pattern for the common line, a scanner for everything else the grammar allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from spmd.errors import VerificationError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.shape import Shape, compatible
from spmd.text.attr_extents import nested_pattern, scan_attributes, split_line
from spmd.text.attrs_text import AttrValues, Callee
from spmd.text.lexer import MAX_NESTING, NAME, Scanner
from spmd.text.read_context import ParsedAttrs, ReadContext, Scope
from spmd.text.shape_text import PRIMITIVE_TYPES

OPCODES = {opcode.value: opcode for opcode in Opcode}
#: What stands in the parentheses of these is no operand.
_OWN_PARENTHESES = frozenset({"parameter", "constant"})

#: root, name, shape, opcode, parentheses, attributes of an instruction that has a line of its own.
LINE = re.compile(
    r"\s*+(ROOT )?%?([A-Za-z_][\w.\-]*+) = "
    rf"([a-z]\w*+\[[^\s()\"'/]*+|{nested_pattern('(', ')', 2)}) "
    r"([a-z][a-z\d\-]*+)\(([^()\n\"']*+(?:\([^()\n\"']*+\)[^()\n\"']*+)*+)\)(?:, ([^\n]*+))?\n(?=\s*+[\w%}])"
)
#: A computation named by an attribute; the rest of the attributes is looked up without it.
_CALLEE_NAME = re.compile(r"(?<![\w\-])(?:to_apply|calls)=%?([A-Za-z_][\w.\-]*+)(?=,|\Z)")
_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")
_ROOT = re.compile(r"ROOT\b(?=\s*+[%A-Za-z_])")
_OPCODE = re.compile(r"[a-z][a-z\d\-]*+")
_NO_SHAPE = re.compile(r"(?!b\s*+\()[a-z][a-z\d\-]*+\s*+\(")
_SHAPE_NEXT = re.compile(r"\(|[a-z]\w*+\s*+\[|b\s*+\(")
_NESTED_NEXT = re.compile(r"[a-z][a-z\d\-]*+\s*+\(")

ReadInline = Callable[[Callee, str], HloComputation]


class InstructionReader:
    """Reads the instructions of one computation into it."""

    def __init__(
        self, context: ReadContext, computation: HloComputation, read_inline: ReadInline
    ) -> None:
        self.context = context
        self.computation = computation
        self.scope: Scope = {}
        self.read_inline = read_inline
        self.has_root = False

    # ---- the common line
    def read_line(self, pos: int, end: int) -> int:
        """Read the instruction whose line begins at ``pos``; 0 when it needs the scanner."""
        found = LINE.match(self.context.source.text, pos, end)
        if found is None:
            return 0
        root, name, shape_text, opcode_text, inner, attr_text = found.groups()
        opcode = OPCODES.get(opcode_text)
        shape = self.context.shapes.of_text(shape_text)
        if shape is None:
            shape = self._line_shape(found.start(3), found.end(3), shape_text)
        if opcode is None or name in self.scope or name in PRIMITIVE_TYPES:
            return 0
        key: tuple[str, ...]
        callee: re.Match[str] | None = None
        if opcode_text in _OWN_PARENTHESES:
            operands: Sequence[HloInstruction] | None = ()
            key = (opcode_text, attr_text or "", inner, shape_text)
        else:
            operands = self._line_operands(inner)
            if operands is None:
                return 0
            if attr_text is None:
                key = (opcode_text,)
            else:
                callee = None if '"' in attr_text else _CALLEE_NAME.search(attr_text)
                if callee is None:
                    key = (opcode_text, attr_text)
                else:
                    name_at, name_end = callee.span(1)
                    key = (opcode_text, attr_text[:name_at], attr_text[name_end:])
        parsed = self.context.parsed.get(key)
        if parsed is None:
            extents = {} if attr_text is None else split_line(attr_text, found.start(6))
            if extents is None:
                return 0
            values = AttrValues(
                self.context.source, found.start(2), opcode_text, extents, shape, found.span(5)
            )
            parsed = self.context.parsed[key] = self.context.parse_attributes(opcode, values)
        callees: tuple[Callee, ...] = parsed.callees
        if callee is not None and len(callees) == 1:
            at = found.start(6)
            callees = (Callee(callee[1], at + callee.start(1), at + callee.end(1)),)
        self._add(
            name, found.start(2), opcode, shape, operands, parsed, callees, is_root=root is not None
        )
        return found.end()

    def _line_shape(self, start: int, end: int, text: str) -> Shape:
        scanner = Scanner(self.context.source, start, end)
        shape = self.context.shapes.read(scanner)
        scanner.finish()
        self.context.shapes.remember(text, shape)
        return shape

    def _line_operands(self, inner: str) -> list[HloInstruction] | None:
        """Operands by name, ``None`` when the text holds more than names and plain shapes."""
        if not inner:
            return []
        if "/*" in inner:
            inner = _INDEX_COMMENT.sub("", inner)
        operands: list[HloInstruction] = []
        scope = self.scope
        for piece in inner.split(", "):
            written = piece.rpartition(" ")
            word = written[2]
            operand = scope.get(word[1:] if word[:1] == "%" else word)
            if operand is None:
                return None
            if written[0]:
                shape = self.context.shapes.of_text(written[0])
                if shape is None or (
                    shape is not operand.shape and not compatible(shape, operand.shape)
                ):
                    return None
            operands.append(operand)
        return operands

    # ---- everything else
    def read_scanned(self, scanner: Scanner) -> HloInstruction:
        """An instruction wherever the scanner stands."""
        is_root = scanner.match(_ROOT) is not None
        scanner.take("%")
        found = scanner.need(NAME, "an instruction")
        name = found.group()
        if name in PRIMITIVE_TYPES:
            scanner.fail(f"{name!r} is an element type, not a name", found.start())
        if scanner.text.startswith("=", scanner.pos, scanner.end):
            scanner.fail(f"expected a blank between {name!r} and '='", scanner.pos)
        scanner.expect("=")
        return self._read_right_side(scanner, name, found.start(), is_root=is_root, depth=0)

    def _read_right_side(
        self, scanner: Scanner, name: str, start: int, *, is_root: bool, depth: int
    ) -> HloInstruction:
        """``shape opcode(operands), attributes``; nested instructions (depth > 0) carry no attributes."""
        if depth > MAX_NESTING:
            scanner.fail(f"operands are nested deeper than {MAX_NESTING}")
        scanner.skip_space()
        shape: Shape | None = None
        if _NO_SHAPE.match(scanner.text, scanner.pos, scanner.end) is None:
            shape = self.context.shapes.read(scanner)
        word = scanner.need(_OPCODE, "an opcode")
        opcode = OPCODES.get(word.group())
        if opcode is None:
            scanner.fail(f"unknown opcode {word.group()!r}", word.start())
        operands, parentheses = self._read_parentheses(scanner, word.group(), depth)
        extents = scan_attributes(scanner) if depth == 0 else {}
        values = AttrValues(
            self.context.source, word.start(), word.group(), extents, shape, parentheses
        )
        parsed = self.context.parse_attributes(opcode, values)
        return self._add(
            name or word.group(),
            start,
            opcode,
            shape,
            operands,
            parsed,
            parsed.callees,
            is_root=is_root,
        )

    def _read_parentheses(
        self, scanner: Scanner, opcode: str, depth: int
    ) -> tuple[list[HloInstruction], tuple[int, int]]:
        if not scanner.peek("("):
            scanner.fail(f"expected '(' after {opcode}, found {scanner.found()}")
        if opcode in _OWN_PARENTHESES:
            start, end = scanner.balanced()
            return [], (start + 1, end - 1)
        start = scanner.pos
        scanner.expect("(")
        operands: list[HloInstruction] = []
        while not scanner.take(")"):
            if operands:
                scanner.expect(",")
            operands.append(self._read_operand(scanner, depth))
        return operands, (start + 1, scanner.pos - 1)

    def _read_operand(self, scanner: Scanner, depth: int) -> HloInstruction:
        """``a``, ``%a``, ``f32[2] a``, or a nested instruction with or without its shape."""
        scanner.skip_space()
        start = scanner.pos
        if _NESTED_NEXT.match(scanner.text, start, scanner.end) is not None:
            return self._read_right_side(scanner, "", start, is_root=False, depth=depth + 1)
        shape: Shape | None = None
        if _SHAPE_NEXT.match(scanner.text, start, scanner.end) is not None:
            shape = self.context.shapes.read(scanner)
            scanner.skip_space()
            if _NESTED_NEXT.match(scanner.text, scanner.pos, scanner.end) is not None:
                scanner.pos = start
                return self._read_right_side(scanner, "", start, is_root=False, depth=depth + 1)
        return self._find_operand(scanner, shape)

    def _find_operand(self, scanner: Scanner, shape: Shape | None) -> HloInstruction:
        scanner.take("%")
        found = scanner.need(NAME, "an operand")
        operand = self.scope.get(found.group())
        if operand is None:
            scanner.fail(f"no instruction {found.group()!r} stands before this one", found.start())
        if shape is not None and not compatible(shape, operand.shape):
            scanner.fail(
                f"operand {operand.name} is written with shape {shape}, it has {operand.shape}",
                found.start(),
            )
        return operand

    # ---- building
    def _add(
        self,
        name: str,
        start: int,
        opcode: Opcode,
        shape: Shape | None,
        operands: Sequence[HloInstruction],
        parsed: ParsedAttrs,
        callee_refs: tuple[Callee, ...],
        *,
        is_root: bool,
    ) -> HloInstruction:
        if name in self.scope:
            raise self.context.source.error(f"instruction {name!r} is defined twice", start)
        callees = [self._callee(callee, name) for callee in callee_refs] if callee_refs else ()
        if (
            not callees
            and (opcode is Opcode.ASYNC_DONE or opcode is Opcode.ASYNC_UPDATE)
            and operands
        ):
            callees = list(operands[0].called_computations)
        instruction = HloInstruction(
            opcode,
            shape,  # type: ignore[arg-type]  # inferred below where it is left out
            operands,
            parsed.attrs,
            name=name,
            called_computations=callees,
            sharding=parsed.sharding,
            annotations=parsed.annotations,
        )
        if shape is None:
            instruction.shape = self._inferred(instruction, start)
        for before, place in parsed.control_predecessors:
            predecessor = self.scope.get(before)
            if predecessor is None:
                raise self.context.source.error(
                    f"no instruction {before!r} stands before this one", place
                )
            predecessor.add_control_dependency_to(instruction)
        try:
            self.computation.add(instruction)
        except VerificationError as error:
            raise self.context.source.error(str(error), start) from error
        self.scope[name] = instruction
        if is_root:
            if self.has_root:
                raise self.context.source.error("a computation has one ROOT", start)
            self.has_root = True
            self.computation.root = instruction
        return instruction

    def _callee(self, callee: Callee, user: str) -> HloComputation:
        if callee.inline:
            return self.read_inline(callee, user)
        computation = self.context.computations.get(callee.name)
        if computation is None:
            raise self.context.source.error(
                f"no computation {callee.name!r} stands before this one", callee.start
            )
        return computation

    def _inferred(self, instruction: HloInstruction, start: int) -> Shape:
        """The shape that was left out."""
        from spmd.ops.inference import infer_shape  # the op definitions, needed only here

        try:
            shape = infer_shape(instruction)
        except VerificationError as error:
            raise self.context.source.error(str(error), start) from error
        if shape is None:
            raise self.context.source.error(f"{instruction.opcode} needs its result shape", start)
        return shape
