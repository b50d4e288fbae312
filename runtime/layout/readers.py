"""Instructions whose layout costs depend on the order of an array: its views, their readers, and loops."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from runtime.buffers.view_ops import VIEW_RULES
from runtime.layout.loop_state import LoopElement
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

#: Ops that pass arrays on to other computations, where arrays must be row-major.
BOUNDARIES = (
    Opcode.TUPLE,
    Opcode.WHILE,
    Opcode.CONDITIONAL,
    Opcode.CALL,
    Opcode.OPT_BARRIER,
    Opcode.ASYNC_START,
)
#: Position of an operand of a user, and the loop state element that it is handed to.
_Position: TypeAlias = tuple[int, "LoopElement | None"]


@dataclass(frozen=True, slots=True)
class Readers:
    """The instructions and operands that depend on the order of an instruction.

    instructions: those whose costs depend on it: the instruction, its views, and their readers. passed: boundaries,
    each with an operand whose copies depend on it.
    """

    instructions: tuple[HloInstruction, ...]
    passed: tuple[tuple[HloInstruction, HloInstruction], ...]


@dataclass
class ReaderIndex:
    """The readers of the arrays of a module, which are the same for all orders.

    times, elements, handed_over: as in ``LayoutModel``.
    """

    times: dict[HloComputation, int]
    elements: dict[HloInstruction, LoopElement]
    handed_over: dict[tuple[HloInstruction, int], LoopElement]
    _readers: dict[HloInstruction, Readers] = field(default_factory=dict)
    _passed_arrays: dict[HloInstruction, dict[HloInstruction, list[_Position]]] = field(
        default_factory=dict
    )

    def forget_all(self) -> None:
        """Drop all that is known. It must be called after an edit of the module."""
        self._readers.clear()
        self._passed_arrays.clear()

    def of(self, x: HloInstruction) -> Readers:
        """Return what depends on the order of ``x``, which is the same for all orders."""
        found = self._readers.get(x)
        if found is None:
            instructions = self._instructions_reading(x)
            found = self._readers[x] = Readers(instructions, self._passed_by(x, instructions))
        return found

    def _instructions_reading(self, x: HloInstruction) -> tuple[HloInstruction, ...]:
        """Return ``x``, its views, and the readers of all of these."""
        element = self.elements.get(x)
        found = dict.fromkeys(element.readers if element is not None else (x,))
        work = list(found)
        if element is not None:
            found.update(dict.fromkeys(element.tuples))
        while work:
            y = work.pop()
            for user in y.users:
                if user.parent not in self.times:
                    continue
                if user.opcode is Opcode.TUPLE:
                    inside = self._passed_on(user, y)
                    work.extend(reader for reader in inside if reader not in found)
                    found.update(dict.fromkeys(inside))
                elif user not in found and user.opcode in VIEW_RULES:
                    work.append(user)
                found[user] = None
        return tuple(found)

    def _passed_by(
        self, x: HloInstruction, instructions: tuple[HloInstruction, ...]
    ) -> tuple[tuple[HloInstruction, HloInstruction], ...]:
        """Return boundaries among ``instructions``, each with an operand whose copies depend on the order of ``x``."""
        found: dict[tuple[HloInstruction, HloInstruction], None] = {}
        for user in instructions:
            if user.opcode in BOUNDARIES:
                arrays = self.arrays_passed_by(user)
                found.update({(user, y): None for y in instructions if y in arrays})
        element = self.elements.get(x)
        if element is not None:
            found.update({(state, state.operand(element.index)): None for state in element.tuples})
        return tuple(found)

    def _passed_on(self, state: HloInstruction, x: HloInstruction) -> list[HloInstruction]:
        """Return the instructions that read ``x`` as an invariant element of the loop state ``state``."""
        return [
            reader
            for _, element in self.arrays_passed_by(state).get(x, ())
            if element is not None and element.is_invariant
            for reader in element.readers
        ]

    def arrays_passed_by(self, x: HloInstruction) -> dict[HloInstruction, list[_Position]]:
        """Return the operands of the user ``x`` that are arrays of rank 1 or more, with their positions."""
        found = self._passed_arrays.get(x)
        if found is None:
            found = self._passed_arrays[x] = {}
            for i, operand in enumerate(x.operands):
                if isinstance(operand.shape, ArrayShape) and operand.dims:
                    found.setdefault(operand, []).append((i, self.handed_over.get((x, i))))
        return found
