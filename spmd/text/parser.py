"""Read HLO text into a module: header, file tables, computations. The driver of the text readers."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

from spmd.errors import HloParseError
from spmd.hlo.computation import HloComputation
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.limits import MAX_INLINE_NESTING
from spmd.ops.attrs import ParameterAttrs
from spmd.shape import Shape
from spmd.shape_compatibility import compatible_bounds
from spmd.text.attrs_text import Callee
from spmd.text.instruction_builder import InstructionBuilder
from spmd.text.instruction_text import begins_shape, read_instruction, read_nameless_instruction
from spmd.text.lexer import STRING, Scanner, Source, unescape
from spmd.text.line_text import read_line
from spmd.text.module_header import read_header
from spmd.text.names import RESERVED, read_name
from spmd.text.read_context import ReadContext
from spmd.text.recovery import begins_computation, skip_computation, skip_instruction

_ENTRY = re.compile(r"ENTRY(?![\w.\-])")
_SINGLE = re.compile(r"(?:ROOT\s++)?%?[A-Za-z_][\w.\-]*+:?\s*+=")
#: The head of a computation on one line. Its signature repeats what the body states.
_HEAD_LINE = re.compile(
    r"\s*+(ENTRY )?%?([A-Za-z_][\w.\-]*+) "
    r"(?:(?=\([^\n{}\"']*?\) -> )[^\n{}\"']++)?\{(?=[ \t\r]*+\n)"
)
_THREAD = re.compile(r",\s*+execution_thread\s*+=\s*+(" + STRING.pattern + ")")


def parse_module(text: str, file: str = "<text>") -> HloModule:
    """Return the module that ``text`` describes. Time is linear in the text.

    ``file`` names the text in errors. Raises HloParseError with file, line and column for text that is not HLO. It
    reports several errors (``errors``) if reading can continue after the first one.
    """
    scanner = Scanner(Source(text, file))
    with _collector_paused():
        module = read_header(scanner)
        reader = _ModuleReader(ReadContext(scanner.source, module))
        if not module.name and _comes_alone(scanner):
            reader.read_single_instruction(scanner)
        reader.read_computations(scanner)
        reader.finish(scanner)
    return module


def _comes_alone(scanner: Scanner) -> bool:
    scanner.skip_space()
    return begins_shape(scanner) or _SINGLE.match(scanner.text, scanner.pos) is not None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a growing graph has no garbage, and traversals of it would take half of the time.

    New objects stay young: if they were put into the oldest generation, modules that are read one after the other would
    accumulate.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class _Head:
    """Head of a computation. ``result``: the shape that the signature states, None without a signature."""

    name: str
    start: int
    is_entry: bool
    result: Shape | None = None


class _ModuleReader:
    def __init__(self, context: ReadContext) -> None:
        self.context = context
        self.entry: HloComputation | None = None
        self.depth = 0

    def read_computations(self, scanner: Scanner) -> None:
        """Read all remaining computations. An error in the head of one skips that computation."""
        recovery = self.context.recovery
        while True:
            start = scanner.pos
            try:
                if scanner.at_end:
                    return
                start = scanner.pos
                self.read_computation(scanner)
            except HloParseError as error:
                if recovery.is_over:
                    raise
                recovery.report(error)
                recovery.lose(skip_computation(scanner, start))

    def read_computation(self, scanner: Scanner) -> None:
        """Read ``[ENTRY] name [(parameters) -> result] { instructions } [, execution_thread="..."]``."""
        head = self._read_head(scanner)
        if head.is_entry and self.entry is not None:
            scanner.fail("a module has one ENTRY computation", head.start)
        if head.name in self.context.computations:
            scanner.fail(f"computation {head.name!r} is defined twice", head.start)
        computation = self._read_body(scanner, head.name)
        self.context.computations[head.name] = computation
        self._check_signature(scanner, head, computation)
        if head.is_entry:
            self.entry = computation
        if (thread := scanner.match(_THREAD)) is not None:
            computation.execution_thread = unescape(thread.group(1)[1:-1])

    def _check_signature(self, scanner: Scanner, head: _Head, computation: HloComputation) -> None:
        if head.result is None or not computation.instructions:
            return
        shape = computation.root.shape
        if not compatible_bounds(head.result, shape):
            scanner.fail(
                f"computation {head.name!r} is written with result {head.result}, its root has {shape}",
                head.start,
            )

    def _read_head(self, scanner: Scanner) -> _Head:
        plain = _HEAD_LINE.match(scanner.text, scanner.pos, scanner.end)
        if plain is not None and plain[2] not in RESERVED:
            # The brace is read with the body.
            scanner.pos = plain.end() - 1
            arrow = scanner.text.rfind(" -> ", plain.end(2), plain.end())
            result = None
            if arrow >= 0:
                inner = Scanner(scanner.source, arrow + len(" -> "), scanner.pos)
                result = inner.entire(self.context.shapes.read)
            return _Head(plain.group(2), plain.start(2), plain.group(1) is not None, result)
        is_entry = scanner.match(_ENTRY) is not None
        name, start = read_name(scanner, "a computation")
        if scanner.peek("("):
            scanner.balanced()
            scanner.expect("->")
            return _Head(name, start, is_entry, self.context.shapes.read(scanner))
        return _Head(name, start, is_entry)

    def _read_body(self, scanner: Scanner, name: str) -> HloComputation:
        """Read the instructions between braces. The computation is added to the module after those that its text
        contains.
        """
        if not scanner.peek("{"):
            scanner.fail(f"expected '{{' of computation {name!r}, found {scanner.found()}")
        start = scanner.pos
        scanner.expect("{")
        module = self.context.module
        computation = module.new_computation(name)
        builder = InstructionBuilder(self.context, computation, self._read_inline)
        before = len(module.computations)
        self._read_instructions(scanner, builder)
        if not builder.is_complete:
            return computation
        if not builder.scope:
            scanner.fail(f"computation {name!r} has no instructions", start)
        self._finish_body(scanner, builder, start)
        if len(module.computations) != before:
            module.computations.append(module.computations.pop(before - 1))
        return computation

    def _read_instructions(self, scanner: Scanner, builder: InstructionBuilder) -> None:
        """Read instructions up to the closing brace. Each line is tried once as a common one, so time stays linear."""
        scanned_until = 0
        while True:
            start = scanner.pos
            try:
                if start >= scanned_until:
                    pos = read_line(builder, start, scanner.end)
                    if pos:
                        scanner.pos = pos
                        continue
                    start = scanner.skip_space()
                    scanned_until = scanner.text.find("\n", start, scanner.end)
                    if scanned_until < 0:
                        scanned_until = scanner.end
                if scanner.consume_if("}"):
                    return
                read_instruction(builder, scanner)
            except HloParseError as error:
                if self.depth:  # the instruction that contains this body is skipped
                    raise
                self._recover(scanner, builder, error, start)

    def _recover(
        self, scanner: Scanner, builder: InstructionBuilder, error: HloParseError, start: int
    ) -> None:
        """Report the error and go on behind the instruction at ``start``."""
        recovery = self.context.recovery
        scanner.pos = start
        if (head := begins_computation(scanner)) != "":
            name = builder.computation.name
            scanner.fail(f"expected '}}' of computation {name!r}, found computation {head!r}")
        recovery.report(error)
        builder.is_complete = False
        name = skip_instruction(scanner, start)
        if name not in builder.scope:
            recovery.lose(name)
        if scanner.pos >= scanner.end:
            recovery.finish()

    def _finish_body(self, scanner: Scanner, builder: InstructionBuilder, start: int) -> None:
        """Set the root, which is the last instruction without a ROOT, and check that parameters are numbered without
        gaps.
        """
        computation = builder.computation
        if not builder.has_root:
            computation.root = next(reversed(builder.scope.values()))
        numbers = [p.attrs_as(ParameterAttrs).number for p in computation.parameters]
        if numbers and numbers[-1] != len(numbers) - 1:
            missing = next(i for i, number in enumerate(numbers) if i != number)
            scanner.fail(f"computation {computation.name!r} has no parameter {missing}", start)

    def _read_inline(self, callee: Callee, user: str) -> HloComputation:
        """Read a computation whose text is in the attribute itself."""
        self.depth += 1
        if self.depth > MAX_INLINE_NESTING:
            raise self.context.source.error(
                "inline computations are nested too deeply", callee.start
            )
        try:
            return self._read_body(
                Scanner(self.context.source, callee.start, callee.end), f"{user}.computation"
            )
        finally:
            self.depth -= 1

    def read_single_instruction(self, scanner: Scanner) -> None:
        """Read a text of one instruction: its operands become the parameters of the entry."""
        computation = self.context.module.new_computation("entry")
        builder = InstructionBuilder(
            self.context, computation, self._read_inline, creates_parameters=True
        )
        nameless = begins_shape(scanner)
        read = read_nameless_instruction if nameless else read_instruction
        computation.root = read(builder, scanner)
        computations = self.context.module.computations
        computations.append(computations.pop(0))  # after the computations written in place
        scanner.finish()

    def finish(self, scanner: Scanner) -> None:
        """Set the module's entry, which is the last computation if none has ENTRY, and its name."""
        self.context.recovery.finish()
        module = self.context.module
        if not module.computations:
            scanner.fail("expected a computation, found the end")
        module.entry = module.computations[-1] if self.entry is None else self.entry
        module.name = module.name or f"module_{module.entry.name}"
