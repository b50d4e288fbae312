"""Helpers of rewriting passes: what must survive of an instruction, its replacement, and dead operands."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.opcode import Opcode

_SHARDY = "xla.sdy.sharding"


def sharding_annotation(instruction: HloInstruction) -> tuple[object, str | None]:
    """Return the user's sharding of the value, in both forms."""
    return instruction.sharding, instruction.annotations.frontend(_SHARDY)


def is_annotated(instruction: HloInstruction) -> bool:
    """Return whether the value's sharding is stated: replacing the instruction would lose it."""
    return instruction.sharding is not None or instruction.annotations.frontend(_SHARDY) is not None


def copy_annotation(old: HloInstruction, new: HloInstruction) -> None:
    """Give ``new``, which replaces ``old``, the sharding stated of ``old``."""
    new.sharding, new.annotations = old.sharding, old.annotations


def is_pinned(instruction: HloInstruction) -> bool:
    """Return whether no other value may replace this one: its annotation or its control dependencies would be lost."""
    return is_annotated(instruction) or instruction.has_control_edges


def builder_at(x: HloInstruction, scope: ModuleScope) -> Builder:
    """Return a builder of values that replace ``x``: in its computation, with its source location."""
    assert x.parent is not None
    builder = Builder(x.parent, scope)
    builder.annotations = Annotations(metadata=x.annotations.metadata)
    return builder


def move_control_edges(old: HloInstruction, new: HloInstruction) -> None:
    """Copy the control dependencies of ``old`` to ``new``, in both directions."""
    for before in old.control_predecessors:
        before.add_control_dependency_to(new)
    for after in old.control_successors:
        new.add_control_dependency_to(after)


def put_in_place(old: HloInstruction, new: HloInstruction) -> None:
    """Replace ``old`` by ``new``, which has no other use, and move sharding, control edges and uses to it."""
    assert old.parent is not None
    new.sharding = old.sharding
    move_control_edges(old, new)
    old.parent.replace(old, new)


def redirect(users: Iterable[HloInstruction], old: HloInstruction, new: HloInstruction) -> None:
    """Make ``users`` read ``new`` instead of ``old``, which other instructions may still read."""
    for user in users:
        for i, operand in enumerate(user.operands):
            if operand is old:
                user.replace_operand(i, new)


def replace_and_prune(
    old: HloInstruction, new: HloInstruction, effects: SideEffects
) -> list[HloInstruction]:
    """Replace all uses of ``old`` by ``new``, and remove instructions that are no longer used.

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
