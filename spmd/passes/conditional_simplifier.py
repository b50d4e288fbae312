"""Conditionals whose branch is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConditionalAttrs
from spmd.passes.algebraic.match import splat
from spmd.passes.inline import inline
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass
from spmd.passes.rewrite import has_control_edges, is_annotated


@register_pass
@dataclass(frozen=True)
class ConditionalSimplifier(HloPass):
    """conditional(constant, ...)  =>  the branch it selects, inlined"""

    name: ClassVar[str] = "conditional-simplifier"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.computations_post_order():
            for x in computation.with_opcode(Opcode.CONDITIONAL):
                branch = known_branch(x)
                if branch is None or is_annotated(x) or has_control_edges(x):
                    continue
                inlined = inline(
                    x.called_computations[branch], (x.operand(1 + branch),), computation
                )
                computation.replace(x, inlined.root)
                changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed


def known_branch(x: HloInstruction) -> int | None:
    """The branch that runs; an index out of range selects the last one."""
    value = splat(x.operand(0))
    if value is None:
        return None
    if x.attrs_as(ConditionalAttrs).predicated:
        return 0 if bool(value) else 1
    last = len(x.called_computations) - 1
    return int(value) if 0 <= int(value) <= last else last
