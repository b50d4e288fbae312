"""Facts of buffer assignment that do not depend on the order: scratch, copies of operands, views that are copies."""

from __future__ import annotations

from dataclasses import field

from runtime.buffers.program import Program, ScheduledCopy, ScheduledOp, all_ops
from runtime.buffers.view_ops import is_view
from spmd.hlo import HloInstruction, HloModule
from spmd.lazy_dataclass import dataclass


@dataclass
class OpFacts:
    """Facts about the instructions of a module. They are empty if the runtime cannot lower the module.

    extra[i]: bytes that instruction i needs while it runs, in addition to its operands and its result: scratch, and
    operands that are copied to another layout.
    in_place[i]: numbers of the operands that i may overwrite; the memory model computes them on demand.
    written: view instructions that strides cannot express, which therefore write arrays of their own.
    """

    extra: dict[HloInstruction, int] = field(default_factory=dict)
    written: dict[HloInstruction, None] = field(default_factory=dict)
    in_place: dict[HloInstruction, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> OpFacts:
        """Return the facts of a linearized program."""
        facts = OpFacts()
        copied: dict[HloInstruction, int] = {}
        for op in all_ops(program.entry):
            instruction = op.instruction
            if isinstance(op, ScheduledCopy):
                copied[instruction] = copied.get(instruction, 0) + _bytes(op)
                continue
            if is_view(instruction):
                facts.written[instruction] = None
            facts._note(instruction, copied.pop(instruction, 0) + sum(s.size for s in op.scratch))
        # Copies at the end of a loop or of the program come after the op of their instruction.
        for instruction, size in copied.items():
            facts._note(instruction, size)
        return facts

    def _note(self, instruction: HloInstruction, size: int) -> None:
        """Record ``size`` if it is the largest of ``instruction``, whose computation may be called several times."""
        if size > self.extra.get(instruction, 0):
            self.extra[instruction] = size

    def is_view(self, instruction: HloInstruction) -> bool:
        """Return whether the result of ``instruction`` is a view of its operand's memory."""
        return is_view(instruction) and instruction not in self.written

    def like(self, copy: HloInstruction, original: HloInstruction, pieces: int = 1) -> None:
        """Give ``copy``, which computes ``original`` or one of ``pieces`` equal pieces of it, its facts."""
        if original in self.extra:
            self.extra[copy] = self.extra[original] // pieces
        if original in self.written:
            self.written[copy] = None
        if original in self.in_place:
            self.in_place[copy] = self.in_place[original]

    def on(self, module: HloModule) -> OpFacts:
        """Return the facts for ``module``, a copy of the module of these facts. Instructions are matched by name."""
        named = {instruction.name: instruction for instruction in module.all_instructions()}
        return OpFacts(
            {named[i.name]: size for i, size in self.extra.items()},
            {named[i.name]: None for i in self.written},
            {named[i.name]: over for i, over in self.in_place.items()},
        )


def _bytes(op: ScheduledOp) -> int:
    return sum(value.size for value in op.results)
