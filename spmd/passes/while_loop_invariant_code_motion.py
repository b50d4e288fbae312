"""Compute values before a loop that are equal in every iteration."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_values import compute_before, cone, determined_instructions
from spmd.passes.while_state import Loop
from spmd.shape import ArrayShape

#: Cheaper made again than carried through the loop.
_FREE = (
    Opcode.CONSTANT,
    Opcode.IOTA,
    Opcode.BROADCAST,
    Opcode.RESHAPE,
    Opcode.BITCAST,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.TUPLE,
)

#: Bytes of a value that may be larger than what it is computed from.
_MAX_BYTES = 4096


@register_pass
@dataclass(frozen=True)
class WhileLoopInvariantCodeMotion(LoopPass):
    """Move computations on unchanging state elements out of loop bodies.

    Collectives stay, so that no gathered value is live longer than one iteration. So do values that are larger than
    their sources and than 4 KiB.
    """

    name: ClassVar[str] = "while-loop-invariant-code-motion"

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        hoisted = self._hoistable(loop, effects)
        if hoisted:
            compute_before(loop, hoisted, builder)
        return bool(hoisted)

    def _hoistable(self, loop: Loop, effects: SideEffects) -> list[HloInstruction]:
        """Return the invariant values that the rest of the body reads and that are worth carrying, in post-order."""
        invariant = determined_instructions(loop, loop.invariants(), effects)
        wanted: dict[HloInstruction, None] = {}
        for x in invariant:
            if any(user not in invariant for user in x.users):
                for value in _worth_carrying(x):
                    wanted[value] = None
        return [x for x in invariant if x in wanted and self._fits(x, invariant)]

    def _fits(self, x: HloInstruction, invariant: dict[HloInstruction, None]) -> bool:
        sources = sum(
            leaf.shape.byte_size for leaf in cone(x) if leaf.opcode is Opcode.GET_TUPLE_ELEMENT
        )
        return isinstance(x.shape, ArrayShape) and x.shape.byte_size <= max(sources, _MAX_BYTES)


def _worth_carrying(x: HloInstruction) -> list[HloInstruction]:
    """Return ``x`` or, if computing it is free, the values that it is computed from."""
    found: list[HloInstruction] = []
    work, seen = [x], {x}
    while work:
        value = work.pop()
        if value.opcode not in _FREE:
            found.append(value)
            continue
        for operand in value.operands:
            if operand not in seen and operand.opcode is not Opcode.PARAMETER:
                seen.add(operand)
                work.append(operand)
    return found
