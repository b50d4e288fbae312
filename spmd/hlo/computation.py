"""HloComputation: a named graph of instructions with parameters and one root. All edits go through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from spmd.errors import VerificationError
from spmd.hlo.instruction import NO_ANNOTATIONS, Annotations, HloInstruction
from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode
from spmd.shape import Shape

if TYPE_CHECKING:
    from spmd.hlo.module import HloModule
    from spmd.sharding import HloSharding


class HloComputation:
    """Instructions in a stable order (before scheduling: any order; after: the schedule).

    C1 every instruction's parent is this computation
    C2 the root is one of the instructions
    C3 parameters are numbered 0..n-1 without gaps
    C4 the graph of operands and control edges has no cycle
    """

    def __init__(self, name: str, module: HloModule | None = None) -> None:
        self.name = name
        self.module = module
        self.root: HloInstruction = _NO_ROOT
        self.execution_thread = ""
        self.annotations: Annotations = NO_ANNOTATIONS
        self._instructions: dict[HloInstruction, None] = {}
        self._parameters: dict[int, HloInstruction] = {}

    # ---- reading
    @property
    def instructions(self) -> tuple[HloInstruction, ...]:
        """Return a snapshot: the computation may be edited while iterating over it."""
        return tuple(self._instructions)

    def __len__(self) -> int:
        return len(self._instructions)

    def newest(self, count: int) -> tuple[HloInstruction, ...]:
        """Return the last ``count`` instructions in stored order, in time proportional to ``count``."""
        return tuple(islice(reversed(self._instructions), count))[::-1]

    @property
    def parameters(self) -> tuple[HloInstruction, ...]:
        return tuple(self._parameters[i] for i in sorted(self._parameters))

    @property
    def num_parameters(self) -> int:
        return len(self._parameters)

    def with_opcode(self, *opcodes: Opcode) -> Iterator[HloInstruction]:
        for instruction in self.instructions:
            if instruction.opcode in opcodes:
                yield instruction

    def post_order(self) -> list[HloInstruction]:
        """Return instructions after their operands and control predecessors; among free choices, in stored order.
        Linear time.

        Raises VerificationError on a cycle (C4).
        """
        placed: dict[HloInstruction, None] = {}
        is_placed = placed.__contains__
        for instruction in self._instructions:
            if instruction in placed:
                continue
            before = instruction.operands
            if instruction.control_predecessors:
                before = (*before, *instruction.control_predecessors)
            # The stored order usually is a post-order: then no search is needed.
            if all(map(is_placed, before)):
                placed[instruction] = None
            else:
                self._add_post_order(instruction, placed)
        return list(placed)

    def _add_post_order(self, last: HloInstruction, placed: dict[HloInstruction, None]) -> None:
        """Add the missing operands and control predecessors of ``last`` to ``placed``, then ``last``, by a depth-first
        search.
        """
        stack = [last]
        entered: set[HloInstruction] = set()
        while stack:
            node = stack[-1]
            if node in placed:
                stack.pop()
                continue
            if node in entered:
                placed[node] = None
                stack.pop()
                continue
            entered.add(node)
            for before in reversed((*node.operands, *node.control_predecessors)):
                if before in placed:
                    continue
                if before in entered:
                    raise VerificationError(
                        f"computation {self.name} has a cycle through {before.name}"
                    )
                stack.append(before)

    # ---- building
    def add(self, instruction: HloInstruction, name: str | None = None) -> HloInstruction:
        """Add a parentless instruction under a name unique in the module. The first instruction becomes the root."""
        wanted = name or instruction.name or instruction.opcode.value
        module = self.module
        instruction.name = (
            module.instruction_names.unique_name(wanted) if module is not None else wanted
        )
        instruction.parent = self
        self._instructions[instruction] = None
        if instruction.opcode is Opcode.PARAMETER:
            self._register_parameter(instruction)
        if self.root is _NO_ROOT:
            self.root = instruction
        return instruction

    def create(
        self,
        opcode: Opcode,
        shape: Shape,
        operands: Iterable[HloInstruction] = (),
        attrs: Attrs = NO_ATTRS,
        *,
        name: str = "",
        called_computations: Iterable[HloComputation] = (),
        sharding: HloSharding | None = None,
        annotations: Annotations = NO_ANNOTATIONS,
    ) -> HloInstruction:
        """Build an instruction and add it."""
        instruction = HloInstruction(
            opcode,
            shape,
            operands,
            attrs,
            name=name,
            called_computations=called_computations,
            sharding=sharding,
            annotations=annotations,
        )
        return self.add(instruction)

    def _register_parameter(self, instruction: HloInstruction) -> None:
        number: int = instruction.attrs.number  # type: ignore[attr-defined]
        if number in self._parameters:
            raise VerificationError(f"computation {self.name} has two parameters {number}")
        self._parameters[number] = instruction

    # ---- editing
    def replace(self, old: HloInstruction, new: HloInstruction) -> None:
        """Replace all uses of ``old`` by ``new`` and remove ``old``."""
        old.replace_all_uses_with(new)
        self.remove(old)

    def remove(self, instruction: HloInstruction) -> None:
        """Remove an instruction that has no users."""
        if instruction.num_users or self.root is instruction:
            raise VerificationError(
                f"cannot remove {instruction.name}: it is {'the root' if self.root is instruction else 'used'}"
            )
        instruction.drop_operands()
        for before in instruction.control_predecessors:
            before.control_successors.remove(instruction)
        for after in instruction.control_successors:
            after.control_predecessors.remove(instruction)
        instruction.control_predecessors.clear()
        instruction.control_successors.clear()
        del self._instructions[instruction]
        if instruction.opcode is Opcode.PARAMETER:
            self._parameters = {n: p for n, p in self._parameters.items() if p is not instruction}
        instruction.parent = None

    def remove_unused(self, keep: Callable[[HloInstruction], bool] = lambda _: False) -> int:
        """Remove every instruction without users except parameters, the root and those that ``keep`` keeps. Returns
        their number.
        """
        removed = 0
        work = [i for i in self._instructions if not i.num_users]
        while work:
            node = work.pop()
            if (
                node.parent is not self
                or node.num_users
                or node is self.root
                or node.control_successors
            ):
                continue
            if node.opcode is Opcode.PARAMETER or keep(node):
                continue
            operands = node.operands
            self.remove(node)
            removed += 1
            work.extend(operands)
        return removed

    def set_order(self, order: Iterable[HloInstruction]) -> None:
        """Store the instructions in this order (a permutation of the current ones)."""
        ordered = dict.fromkeys(order)
        if len(ordered) != len(self._instructions) or any(
            i not in self._instructions for i in ordered
        ):
            raise VerificationError(
                f"computation {self.name}: the order is not a permutation of the instructions"
            )
        self._instructions = ordered

    def __repr__(self) -> str:
        return f"<HloComputation {self.name}: {len(self)} instructions>"


_NO_ROOT = HloInstruction(Opcode.TUPLE, shape=None, name="<no root>")  # type: ignore[arg-type]
