"""What rewriting passes share: which instructions carry annotations that must survive, and dead operands."""

from __future__ import annotations

from spmd.analysis.side_effects import SideEffects
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

_SHARDY = "xla.sdy.sharding"


def sharding_annotation(instruction: HloInstruction) -> tuple[object, str | None]:
    """What the user said about the value's sharding, in both forms."""
    return instruction.sharding, instruction.annotations.frontend(_SHARDY)


def is_annotated(instruction: HloInstruction) -> bool:
    """The value's sharding was stated: replacing the instruction would lose it."""
    return instruction.sharding is not None or instruction.annotations.frontend(_SHARDY) is not None


def has_control_edges(instruction: HloInstruction) -> bool:
    return bool(instruction.control_predecessors or instruction.control_successors)


def replace_and_prune(
    old: HloInstruction, new: HloInstruction, effects: SideEffects
) -> list[HloInstruction]:
    """Uses of ``old`` become uses of ``new``; what nobody needs any more is removed.

    Returns the operands whose number of users fell.
    """
    assert old.parent is not None
    old.replace_all_uses_with(new)
    touched: list[HloInstruction] = []
    work = [old]
    while work:
        dead = work.pop()
        if dead.parent is None or dead.num_users or dead.is_root or dead.control_successors:
            continue
        if dead.opcode is Opcode.PARAMETER or effects.of(dead):
            continue
        operands = dict.fromkeys(dead.operands)
        dead.parent.remove(dead)
        touched.extend(operands)
        work.extend(operands)
    return [x for x in touched if x.parent is not None]
