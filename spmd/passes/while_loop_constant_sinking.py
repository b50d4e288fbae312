"""Make constants that a loop carries unchanged constants of its body and condition."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.passes.constant_copies import copy_constant, is_small_constant
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.rewrite import redirect
from spmd.passes.while_state import Loop, element_index


@register_pass
@dataclass(frozen=True)
class WhileLoopConstantSinking(LoopPass):
    """Replace a carried element that starts as a constant (or a repeated one) and never changes, wherever it is read.

    The element itself is left for the while-loop-simplifier to drop. Large constants stay outside.
    """

    name: ClassVar[str] = "while-loop-constant-sinking"

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        changed = False
        for index, value in enumerate(loop.initial):
            if is_small_constant(value) and loop.is_invariant(index):
                for inside in (loop.condition, loop.body):
                    there = builder.within(inside)
                    changed |= _replace_reads(loop, inside, index, value, there)
        return changed


def _replace_reads(
    loop: Loop, inside: HloComputation, index: int, value: HloInstruction, builder: Builder
) -> bool:
    """Make instructions of ``inside`` that read element ``index`` read a copy of ``value``. The body still passes the
    element on.
    """
    changed = False
    for read in inside.parameters[0].users:
        users = [user for user in read.users if user is not loop.body.root]
        if element_index(read) != index or not (users or read is loop.condition.root):
            continue
        constant = copy_constant(value, builder)
        redirect(users, read, constant)
        if read is loop.condition.root:
            loop.condition.root = constant
        changed = True
    return changed
