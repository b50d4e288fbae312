"""Put instructions into a computation as their text is read: names, callees, control edges, left-out shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.errors import VerificationError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Attrs, Opcode
from spmd.ops.attrs import AsyncAttrs
from spmd.ops.implied_shape import IGNORE_THEIR_SHAPE, implied_shape
from spmd.shape import Shape, TupleShape
from spmd.text.attrs_text import Callee
from spmd.text.read_context import ParsedAttrs, ReadContext

#: A set, since looking a member up in its enum costs 0.1 us per instruction.
_ASYNC = frozenset({Opcode.ASYNC_START, Opcode.ASYNC_UPDATE, Opcode.ASYNC_DONE})
_MAIN_THREAD = "main"

ReadInline = Callable[[Callee, str], HloComputation]


class InstructionBuilder:
    """One computation under construction.

    ``scope``: its instructions by the name they are written with (``add`` may rename them, so that names are unique in
    the module). ``creates_parameters``: undefined operands become parameters, as in a text of one instruction.
    """

    def __init__(
        self,
        context: ReadContext,
        computation: HloComputation,
        read_inline: ReadInline,
        *,
        creates_parameters: bool = False,
    ) -> None:
        self.context = context
        self.computation = computation
        self.scope: dict[str, HloInstruction] = {}
        self.has_root = False
        #: Whether ``%true`` is defined here. An operand ``true`` then is not the keyword, so operands need the full
        #: grammar.
        self.defines_reserved = False
        #: False after an instruction with an error was skipped; the computation is then not checked.
        self.is_complete = True
        self.creates_parameters = creates_parameters
        self.read_inline = read_inline

    def add(
        self,
        name: str,
        start: int,
        opcode: Opcode,
        shape: Shape | None,
        operands: Sequence[HloInstruction],
        parsed: ParsedAttrs,
        callee_refs: tuple[Callee, ...],
        *,
        is_root: bool = False,
        is_named: bool = True,
    ) -> HloInstruction:
        """Build an instruction and add it; errors point at ``start``. A nested one (not named) cannot
        be referred to.
        """
        if is_named and name in self.scope:
            raise self.context.source.error(f"instruction {name!r} is defined twice", start)
        callees: Sequence[HloComputation] = (
            [self._callee(callee, name) for callee in callee_refs] if callee_refs else ()
        )
        if opcode in _ASYNC:
            callees = self._async_callees(opcode, operands, callees, parsed, start)
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
        elif opcode in IGNORE_THEIR_SHAPE:
            instruction.shape = implied_shape(opcode, operands) or shape
        if shape is None or not is_named:
            self._count_leaves(instruction.shape, start)
        for before, offset in parsed.control_predecessors:
            self.find(before, offset).add_control_dependency_to(instruction)
        try:
            self.computation.add(instruction)
        except VerificationError as error:
            raise self.context.source.error(str(error), start) from error
        if is_named:
            self.scope[name] = instruction
        if is_root:
            if self.has_root:
                raise self.context.source.error("a computation has one ROOT", start)
            self.has_root = True
            self.computation.root = instruction
        return instruction

    def find(self, name: str, start: int) -> HloInstruction:
        """Return the instruction named ``name``. Raises HloParseError at ``start`` if it is not defined before."""
        found = self.scope.get(name)
        if found is None:
            raise self.context.missing("instruction", name, start)
        return found

    def _async_callees(
        self,
        opcode: Opcode,
        operands: Sequence[HloInstruction],
        callees: Sequence[HloComputation],
        parsed: ParsedAttrs,
        start: int,
    ) -> Sequence[HloComputation]:
        """Return the callees of an asynchronous instruction: its start's computation, which no other start has.

        async-update and async-done may repeat that computation and its thread.
        """
        source = self.context.source
        if opcode is Opcode.ASYNC_START:
            for computation in callees:
                if id(computation) in self.context.async_computations:
                    message = f"computation {computation.name!r} is started by two async-starts"
                    raise source.error(message, start)
                self.context.async_computations.add(id(computation))
            return callees
        begun = _start_of(operands)
        if begun is None:
            return callees
        if callees and list(callees) != begun.called_computations:
            found, wanted = callees[0].name, begun.to_apply.name
            raise source.error(
                f"{opcode} names the computation {found!r}, {begun.name} started {wanted!r}", start
            )
        attrs = parsed.attrs
        is_stated = isinstance(attrs, AsyncAttrs) and attrs.execution_thread != ""
        if is_stated and _thread(attrs) != _thread(begun.attrs):
            raise source.error(
                f"{opcode} names the thread {_thread(attrs)!r}, {begun.name} runs on {_thread(begun.attrs)!r}",
                start,
            )
        return begun.called_computations

    def _callee(self, callee: Callee, user: str) -> HloComputation:
        if callee.inline:
            return self.read_inline(callee, user)
        computation = self.context.computations.get(callee.name)
        if computation is None:
            raise self.context.missing("computation", callee.name, callee.start)
        return computation

    def _count_leaves(self, shape: Shape, start: int) -> None:
        """Count the leaves of the shape against a limit: ``tuple(x, x)`` doubles a shape in a few bytes."""
        if isinstance(shape, TupleShape):
            self.context.source.imply(shape.num_leaves, "left-out tuple shapes", start)

    def _inferred(self, instruction: HloInstruction, start: int) -> Shape:
        """Return the shape that the text leaves out."""
        from spmd.text.left_out_shape import left_out_shape  # deferred: has the op definitions

        try:
            shape = left_out_shape(instruction)
        except VerificationError as error:
            raise self.context.source.error(str(error), start) from error
        if shape is None:
            raise self.context.source.error(f"{instruction.opcode} needs its result shape", start)
        return shape


def _start_of(operands: Sequence[HloInstruction]) -> HloInstruction | None:
    """Return the async-start that an async-update or async-done of these operands continues."""
    x = operands[0] if operands else None
    while x is not None and x.opcode is Opcode.ASYNC_UPDATE:
        x = x.operands[0] if x.operands else None
    return x if x is not None and x.opcode is Opcode.ASYNC_START else None


def _thread(attrs: Attrs) -> str:
    return attrs.execution_thread or _MAIN_THREAD if isinstance(attrs, AsyncAttrs) else ""
