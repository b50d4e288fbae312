"""Edit the carried state of while loops: read its elements, drop some, add some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.passes.rewrite import is_annotated, is_pinned, redirect
from spmd.shape import TupleShape


@dataclass(frozen=True)
class Loop:
    """A while with a tuple state that condition and body read by element only, and that the body returns as a tuple
    instruction.

    The elements of such a loop are known everywhere. ``initial``: the state's elements before the loop if they are
    instructions already (the state is a ``tuple``), else empty.
    """

    instruction: HloInstruction
    initial: tuple[HloInstruction, ...]

    @property
    def body(self) -> HloComputation:
        return self.instruction.while_body

    @property
    def condition(self) -> HloComputation:
        return self.instruction.while_condition

    @property
    def size(self) -> int:
        return len(self.initial)

    def next_value(self, index: int) -> HloInstruction:
        """Return the body's result for element ``index``."""
        return self.body.root.operand(index)

    def is_invariant(self, index: int) -> bool:
        """Return whether the body passes element ``index`` on unchanged."""
        value = self.next_value(index)
        return is_element_of(value, self.body.parameters[0]) and element_index(value) == index

    def invariants(self) -> set[int]:
        """Return the elements that the body passes on unchanged."""
        return {i for i in range(self.size) if self.is_invariant(i)}


def element_index(x: HloInstruction) -> int:
    return x.attrs_as(TupleIndexAttrs).index


def is_element_of(x: HloInstruction, tuple_value: HloInstruction) -> bool:
    return x.opcode is Opcode.GET_TUPLE_ELEMENT and x.operand(0) is tuple_value


def match_loop(x: HloInstruction, sites: Counter[HloComputation]) -> Loop | None:
    """Return ``x`` as a loop whose state can be edited, or None."""
    if x.opcode is not Opcode.WHILE or is_pinned(x):
        return None
    if any(sites[callee] != 1 for callee in x.called_computations):
        return None
    state, root = x.operand(0), x.while_body.root
    if state.opcode is not Opcode.TUPLE or root.opcode is not Opcode.TUPLE or is_annotated(root):
        return None
    for computation in x.called_computations:
        parameter = computation.parameters[0]
        if is_annotated(parameter) or not has_only_element_reads(parameter):
            return None
    return Loop(x, state.operands)


def used_reads(tuple_value: HloInstruction) -> list[HloInstruction]:
    """Return the get-tuple-elements of a value, which nothing else reads, that are used."""
    return [read for read in tuple_value.users if read.users or read.is_root]


def used_reads_of(computation: HloComputation, index: int) -> list[HloInstruction]:
    """Return the used reads of element ``index`` of the state in a loop's condition or body."""
    return [read for read in used_reads(computation.parameters[0]) if element_index(read) == index]


def has_only_element_reads(x: HloInstruction) -> bool:
    """Return whether only get-tuple-elements read the tuple ``x``."""
    return not x.is_root and all(user.opcode is Opcode.GET_TUPLE_ELEMENT for user in x.users)


def result_has_only_element_reads(loop: Loop) -> bool:
    """Return whether only get-tuple-elements read the loop's result."""
    return has_only_element_reads(loop.instruction)


def has_effects(loop: Loop, effects: SideEffects) -> bool:
    """Return whether condition or body have side effects, so that their number of executions must not change."""
    return effects.inside(loop.condition) or effects.inside(loop.body)


def keep_elements(
    loop: Loop, elements: Sequence[int], builder: Builder, effects: SideEffects
) -> HloInstruction:
    """Make the loop carry only ``elements`` (ascending indices); only their own updates may read the others."""
    new_index = {old: new for new, old in enumerate(elements)}
    shape = TupleShape(tuple(loop.initial[i].shape for i in elements))
    root = loop.body.root
    loop.body.root = builder.within(loop.body).tuple([root.operand(i) for i in elements])
    loop.body.remove(root)
    for computation in (loop.condition, loop.body):
        computation.remove_unused(keep=effects.of)
        renumber(computation.parameters[0], new_index)
        computation.parameters[0].shape = shape
    renumber(loop.instruction, new_index)
    return _replace_loop(loop, builder.tuple([loop.initial[i] for i in elements]))


def renumber(tuple_value: HloInstruction, new_index: dict[int, int]) -> None:
    """Change the reads of a tuple to the elements' new indices, and remove the (unused) reads of other elements."""
    for user in tuple_value.users:
        index = element_index(user)
        if index in new_index:
            user.attrs = TupleIndexAttrs(new_index[index])
        else:
            assert user.parent is not None
            user.parent.remove(user)


def _replace_loop(loop: Loop, state: HloInstruction) -> HloInstruction:
    old = loop.instruction
    assert old.parent is not None
    new = old.clone(state.shape, (state,))
    old.parent.add(new)
    old.parent.replace(old, new)
    return new


def add_elements(
    loop: Loop, values: Sequence[HloInstruction], builder: Builder
) -> tuple[Loop, list[HloInstruction]]:
    """Carry ``values`` through the loop unchanged. Returns the new loop, and the values as the body reads them.

    Users of the loop's result read the same elements as before.
    """
    if not result_has_only_element_reads(loop):
        _decompose_result(loop, builder)
    shape = TupleShape(tuple(x.shape for x in (*loop.initial, *values)))
    for computation in (loop.condition, loop.body):
        computation.parameters[0].shape = shape
    inside = builder.within(loop.body)
    parameter = loop.body.parameters[0]
    seen = [inside.get_tuple_element(parameter, loop.size + i) for i in range(len(values))]
    root = loop.body.root
    loop.body.root = inside.tuple([*root.operands, *seen])
    loop.body.remove(root)
    state = builder.tuple([*loop.initial, *values])
    return Loop(_replace_loop(loop, state), state.operands), seen


def _decompose_result(loop: Loop, builder: Builder) -> None:
    """Make instructions that read the entire result read a tuple of its elements."""
    x = loop.instruction
    readers = [user for user in x.users if user.opcode is not Opcode.GET_TUPLE_ELEMENT]
    elements = builder.tuple([builder.get_tuple_element(x, i) for i in range(loop.size)])
    redirect(readers, x, elements)
    if x.is_root:
        builder.computation.root = elements
