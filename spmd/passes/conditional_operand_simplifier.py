"""Hand conditionals' branches no more than they read, and nothing that they can make themselves."""

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
from spmd.passes.constant_copies import copy_constant, is_small_constant
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_annotated, is_pinned
from spmd.passes.while_state import element_index, has_only_element_reads, renumber, used_reads
from spmd.shape import TupleShape


@register_pass
@dataclass(frozen=True)
class ConditionalOperandSimplifier(InstructionPass):
    """conditional(p, .., tuple(x, x, constant, y))  =>  conditional(p, .., tuple(x))

    where the branch reads y nowhere: it reads the first x for both and a constant of its own. Large constants stay
    outside.
    """

    name: ClassVar[str] = "conditional-operand-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.CONDITIONAL,)

    def editor(self, module: HloModule) -> Edit:
        scope, sites, effects = ModuleScope(module), call_sites(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            builder, changed = builder_at(x, scope), False
            for branch in range(len(x.called_computations)):
                if decomposes_tuple(x, branch, sites):
                    changed |= self._read_less(x, branch, builder)
                    changed |= _drop_unread(x, branch, builder, effects)
            return changed

        return edit

    def _read_less(self, x: HloInstruction, branch: int, builder: Builder) -> bool:
        """Replace reads of constants by copies of them, and reads of repeated elements by reads of the first one."""
        callee, elements = x.called_computations[branch], x.operand(1 + branch).operands
        inside = builder.within(callee)
        changed = False
        for read in used_reads(callee.parameters[0]):
            element = elements[element_index(read)]
            if is_pinned(read):
                continue
            if is_small_constant(element):
                callee.replace(read, copy_constant(element, inside))
                changed = True
            elif elements.index(element) != element_index(read):
                read.attrs = TupleIndexAttrs(elements.index(element))
                changed = True
        return changed


def decomposes_tuple(x: HloInstruction, branch: int, sites: Counter[HloComputation]) -> bool:
    """Return whether the branch has only this caller, the operand is a tuple instruction, and the branch reads its
    elements only.
    """
    if is_pinned(x):
        return False
    callee, operand = x.called_computations[branch], x.operand(1 + branch)
    parameter = callee.parameters[0]
    return (
        sites[callee] == 1
        and operand.opcode is Opcode.TUPLE
        and not is_annotated(operand)
        and not is_annotated(parameter)
        and has_only_element_reads(parameter)
    )


def _drop_unread(x: HloInstruction, branch: int, builder: Builder, effects: SideEffects) -> bool:
    parameter, state = x.called_computations[branch].parameters[0], x.operand(1 + branch)
    read_elements = sorted({element_index(read) for read in used_reads(parameter)})
    if len(read_elements) == state.num_operands:
        return False
    renumber(parameter, {old: new for new, old in enumerate(read_elements)})
    parameter.shape = TupleShape(tuple(state.operand(i).shape for i in read_elements))
    x.replace_operand(1 + branch, builder.tuple([state.operand(i) for i in read_elements]))
    builder.computation.remove_unused(keep=effects.of)
    return True
