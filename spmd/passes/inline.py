"""Copy a computation's instructions into another computation, parameters replaced by values."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs


@dataclass(frozen=True)
class Inlined:
    """Result of inlining. ``root``: the callee's result; ``instructions``: the copies, in the callee's order."""

    root: HloInstruction
    instructions: tuple[HloInstruction, ...]


def inline(
    callee: HloComputation,
    arguments: Sequence[HloInstruction],
    caller: HloComputation,
    keep_names: bool = False,
) -> Inlined:
    """Copy the callee to the end of ``caller``. keep_names: the callee is going to be removed, so its names become
    free.
    """
    copies: dict[HloInstruction, HloInstruction] = {}
    for x in callee.post_order():
        if x.opcode is Opcode.PARAMETER:
            copies[x] = arguments[x.attrs_as(ParameterAttrs).number]
            continue
        copy = caller.add(x.clone(x.shape, [copies[operand] for operand in x.operands]))
        if keep_names:
            copy.name = x.name
        for before in x.control_predecessors:
            copies[before].add_control_dependency_to(copy)
        copies[x] = copy
    made = tuple(copies[x] for x in callee.instructions if x.opcode is not Opcode.PARAMETER)
    return Inlined(copies[callee.root], made)
