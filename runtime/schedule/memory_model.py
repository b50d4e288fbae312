"""How an order of instructions uses memory, coarsely and in linear time: what the memory scheduler compares orders by.

Buffers are per instruction, not per leaf; views cost nothing and keep their source alive; a result that may be written
over a dying operand of its size costs nothing either. The exact figure comes from buffer assignment, later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.buffers.view_ops import is_view
from runtime.lowering import LOWERINGS
from spmd.hlo import HloComputation, HloInstruction, Opcode

_FREE = frozenset(
    {
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.OPT_BARRIER,
        Opcode.AFTER_ALL,
        Opcode.CONSTANT,
        Opcode.IOTA,
        Opcode.PARAMETER,
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
    }
)


@dataclass
class MemoryModel:
    """Facts about one computation that hold for every order.

    sources[i]: the instructions whose buffers ``i`` shows (itself where it writes one).
    size[i]: bytes it writes. inner[i]: bytes that the computations it calls need while it runs.
    """

    computation: HloComputation
    inner: dict[HloInstruction, int]
    sources: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)
    size: dict[HloInstruction, int] = field(default_factory=dict)
    readers: dict[HloInstruction, int] = field(default_factory=dict)
    reads: dict[HloInstruction, tuple[HloInstruction, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for instruction in self.computation.post_order():
            self._add(instruction)
        root = self.computation.root
        for source in self.sources[root]:
            self.readers[source] = self.readers.get(source, 0) + 1

    def _add(self, instruction: HloInstruction) -> None:
        shown = tuple(dict.fromkeys(s for o in instruction.operands for s in self.sources[o]))
        if instruction.opcode in _FREE or is_view(instruction):
            self.sources[instruction] = shown
            self.size[instruction] = 0
            self.reads[instruction] = ()
            return
        self.sources[instruction] = (instruction,)
        # A loop starts on the memory of what comes in.
        is_loop = instruction.opcode is Opcode.WHILE
        self.size[instruction] = 0 if is_loop else instruction.shape.byte_size
        if is_loop:
            self.sources[instruction] = (instruction, *shown)
        self.reads[instruction] = shown
        for source in shown:
            self.readers[source] = self.readers.get(source, 0) + 1

    def may_replace(self, instruction: HloInstruction, source: HloInstruction) -> bool:
        """``instruction`` may be written over ``source``, which dies with it."""
        if self.size[source] != self.size[instruction]:
            return False
        lowering = LOWERINGS.get(instruction.opcode)
        if lowering is None:
            return False
        return any(
            instruction.operand(operand) is source
            for result, operand in lowering.in_place(instruction)
            if operand < instruction.num_operands
        )

    def peak(self, order: Sequence[HloInstruction]) -> int:
        """Largest number of live bytes over the order, parameters and constants not counted."""
        left = dict.fromkeys(order, 0)
        left.update(self.readers)
        # Views extend lives: a source lives until the last reader of it, direct or through views, has run.
        live = peak = 0
        for instruction in order:
            size = self.size[instruction]
            reads = self.reads[instruction]
            for source in reads:
                left[source] -= 1
            dying = [s for s in reads if left[s] == 0]
            over = next((s for s in dying if size and self.may_replace(instruction, s)), None)
            peak = max(
                peak, live + (0 if over is not None else size) + self.inner.get(instruction, 0)
            )
            live += size - sum(self.size[s] for s in dying)
            if size and not left[instruction]:
                live -= size
        return peak
