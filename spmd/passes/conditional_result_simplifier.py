"""Let conditionals return only results that are read, and each value once."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.passes.while_state import element_index, has_only_element_reads, renumber, used_reads
from spmd.shape import TupleShape


@register_pass
@dataclass(frozen=True)
class ConditionalResultSimplifier(InstructionPass):
    """Branches that return tuple(x, y, x) and tuple(u, v, u)  =>  tuple(x) and tuple(u)

    if element 1 is not read: users of element 2 read element 0.
    """

    name: ClassVar[str] = "conditional-result-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.CONDITIONAL,)

    def editor(self, module: HloModule) -> Edit:
        scope, sites, effects = ModuleScope(module), call_sites(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            if not returns_tuples(x, sites):
                return False
            changed = _read_first(x)
            return _drop_unread(x, builder_at(x, scope), effects) or changed

        return edit


def returns_tuples(x: HloInstruction, sites: Counter[HloComputation]) -> bool:
    """Return whether every branch has only this caller and its root is a tuple instruction, and only elements of the
    result are read.
    """
    if is_pinned(x) or not has_only_element_reads(x):
        return False
    return all(
        sites[branch] == 1
        and branch.root.opcode is Opcode.TUPLE
        and not is_pinned(branch.root)
        and not branch.root.users
        for branch in x.called_computations
    )


def _read_first(x: HloInstruction) -> bool:
    """Replace reads of an element that every branch returns twice by reads of the first of the two."""
    returned = list(zip(*(branch.root.operands for branch in x.called_computations), strict=True))
    changed = False
    for read in used_reads(x):
        first = returned.index(returned[element_index(read)])
        if first != element_index(read) and not is_pinned(read):
            read.attrs = TupleIndexAttrs(first)
            changed = True
    return changed


def _drop_unread(x: HloInstruction, builder: Builder, effects: SideEffects) -> bool:
    elements = x.called_computations[0].root.operands
    read_elements = sorted({element_index(read) for read in used_reads(x)})
    if not read_elements or len(read_elements) == len(elements):
        return False
    for branch in x.called_computations:
        old = branch.root
        branch.root = builder.within(branch).tuple([old.operand(i) for i in read_elements])
        branch.remove(old)
        branch.remove_unused(keep=effects.of)
    renumber(x, {old: new for new, old in enumerate(read_elements)})
    smaller = x.clone(TupleShape(tuple(elements[i].shape for i in read_elements)), x.operands)
    builder.computation.add(smaller)
    builder.computation.replace(x, smaller)
    return True
