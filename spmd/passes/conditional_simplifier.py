"""Conditionals whose branch is known."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConditionalAttrs
from spmd.passes.algebraic.match import splat
from spmd.passes.inline import inline
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import is_pinned


@register_pass
@dataclass(frozen=True)
class ConditionalSimplifier(InstructionPass):
    """conditional(constant, ...)  =>  the branch it selects, inlined"""

    name: ClassVar[str] = "conditional-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.CONDITIONAL,)

    def editor(self, module: HloModule) -> Edit:
        return inline_known_branch


def inline_known_branch(x: HloInstruction) -> bool:
    branch = known_branch(x)
    if branch is None or is_pinned(x):
        return False
    assert x.parent is not None
    callee, operand = x.called_computations[branch], x.operand(1 + branch)
    x.parent.replace(x, inline(callee, (operand,), x.parent).root)
    return True


def known_branch(x: HloInstruction) -> int | None:
    """Return the branch that runs. An index out of range selects the last one."""
    value = splat(x.operand(0))
    if value is None:
        return None
    if x.attrs_as(ConditionalAttrs).predicated:
        return 0 if bool(value) else 1
    last = len(x.called_computations) - 1
    return int(value) if 0 <= int(value) <= last else last
