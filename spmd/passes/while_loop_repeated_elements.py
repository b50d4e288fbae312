"""Let a loop read one element of its state where several hold the same value."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.structure import StructuralKeys
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.passes.common_subexpression_elimination import is_mergeable, value_key
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_state import Loop, element_index, is_element_of, match_loop


@register_pass
@dataclass(frozen=True)
class WhileLoopRepeatedElements(InstructionPass):
    """state = (i, j, ..), both from 0, body returns (i + 1, j + 1, ..)  =>  what read j reads i

    Elements that start as one value are assumed to be equal until the body computes different values from them. JAX's
    counted loops have a counter besides the user's; gradients carry one cosine for each reader. The while-loop-
    simplifier removes the elements that are not read any more.
    """

    name: ClassVar[str] = "while-loop-repeated-elements"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)

    def editor(self, module: HloModule) -> Edit:
        sites, effects, structure = call_sites(module), SideEffects(), StructuralKeys()

        def edit(x: HloInstruction) -> bool:
            loop = match_loop(x, sites)
            if loop is None:
                return False
            return _read_first(loop, equal_elements(loop, effects, structure))

        return edit


def equal_elements(loop: Loop, effects: SideEffects, structure: StructuralKeys) -> list[int]:
    """Return, for each element, the first one that is equal to it before and after every iteration."""
    keys: list[Hashable] = [id(value) for value in loop.initial]
    first = _firsts(keys)
    while len(set(first)) < loop.size:
        numbers = _value_numbers(loop, first, effects, structure)
        refined = _firsts([(first[i], numbers[loop.next_value(i)]) for i in range(loop.size)])
        if refined == first:
            break
        first = refined
    return first


def _firsts(keys: list[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, i) for i, key in enumerate(keys)]


def _value_numbers(
    loop: Loop, first: list[int], effects: SideEffects, structure: StructuralKeys
) -> dict[HloInstruction, int]:
    """Return value numbers: values of the body with equal numbers are equal if elements with one ``first`` are equal
    before it.
    """
    parameter = loop.body.parameters[0]
    numbers: dict[HloInstruction, int] = {}
    known: dict[Hashable, int] = {}
    for x in loop.body.post_order():
        key: Hashable = x
        if is_element_of(x, parameter):
            key = first[element_index(x)]
        elif is_mergeable(x, effects):
            key = value_key(x, [numbers[operand] for operand in x.operands], structure)
        numbers[x] = known.setdefault(key, len(known))
    return numbers


def _read_first(loop: Loop, first: list[int]) -> bool:
    changed = False
    for state in (loop.condition.parameters[0], loop.body.parameters[0], loop.instruction):
        for read in state.users:
            if read.opcode is not Opcode.GET_TUPLE_ELEMENT or not (read.users or read.is_root):
                continue
            index = element_index(read)
            if first[index] == index or is_pinned(read):
                continue
            read.attrs = TupleIndexAttrs(first[index])
            changed = True
    return changed
