"""Sorts of operands that are read only."""

from __future__ import annotations

from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs, SortAttrs, TupleIndexAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import (
    builder_at,
    copy_annotation,
    is_annotated,
    is_pinned,
)


@register_pass
@dataclass(frozen=True)
class SortSimplifier(InstructionPass):
    """sort(x, y, z)  =>  sort(x, z), if neither the comparator nor a user reads y

    sort(x, y)  =>  x, y, along a dimension of one element
    """

    name: ClassVar[str] = "sort-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.SORT,)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            if is_pinned(x):
                return False
            return _forward_operands(x, builder_at(x, scope)) or _drop_unread(
                x, builder_at(x, scope)
            )

        return edit


def _forward_operands(sort: HloInstruction, b: Builder) -> bool:
    """Replace a sort of single elements by its operands."""
    if sort.operand(0).dims[sort.attrs_as(SortAttrs).dimension] > 1:
        return False
    operands = sort.operands
    b.computation.replace(sort, operands[0] if len(operands) == 1 else b.tuple(operands))
    return True


def _drop_unread(sort: HloInstruction, b: Builder) -> bool:
    read_operands = _read(sort)
    if read_operands is None or len(read_operands) in (0, sort.num_operands):
        return False
    comparator = _of_operands(sort.to_apply, read_operands)
    operands = [sort.operand(i) for i in read_operands]
    smaller = b.create(Opcode.SORT, operands, sort.attrs, calls=(comparator,))
    for read in sort.users:
        if not _is_used(read):
            b.computation.remove(read)
            continue
        part = smaller
        if len(read_operands) > 1:
            index = read_operands.index(read.attrs_as(TupleIndexAttrs).index)
            part = b.get_tuple_element(smaller, index)
        elif is_annotated(read) and is_annotated(smaller):
            part = b.copy(smaller)
        if is_annotated(read):
            copy_annotation(read, part)
        b.computation.replace(read, part)
    b.computation.remove(sort)
    return True


def _read(sort: HloInstruction) -> list[int] | None:
    """Return the operands that the comparator or a user reads; None if the entire tuple is read."""
    users = sort.users
    if sort.is_root or not all(map(_is_element, users)):
        return None
    compared = [
        x.attrs_as(ParameterAttrs).number // 2
        for x in sort.to_apply.parameters
        if x.num_users or x.is_root
    ]
    read = [x.attrs_as(TupleIndexAttrs).index for x in users if _is_used(x)]
    return sorted({*compared, *read}) if read else None


def _is_element(x: HloInstruction) -> bool:
    return x.opcode is Opcode.GET_TUPLE_ELEMENT and not x.has_control_edges


def _is_used(x: HloInstruction) -> bool:
    return bool(x.num_users) or x.is_root


def _of_operands(comparator: HloComputation, operands: list[int]) -> HloComputation:
    """Return a copy of `comparator` for the operands `kept`; it reads no other."""
    module = comparator.module
    assert module is not None
    copy = module.new_computation(comparator.name)
    made: dict[HloInstruction, HloInstruction] = {}
    for x in comparator.post_order():
        if x.opcode is not Opcode.PARAMETER:
            made[x] = copy.add(x.clone(x.shape, [made[operand] for operand in x.operands]))
            continue
        number = x.attrs_as(ParameterAttrs).number
        if number // 2 in operands:
            new_number = 2 * operands.index(number // 2) + number % 2
            made[x] = copy.add(x.clone(x.shape, (), attrs=ParameterAttrs(new_number)))
    copy.root = made[comparator.root]
    # Its callees stand before the comparator, its caller behind it (M1).
    module.computations.insert(module.computations.index(comparator), module.computations.pop())
    return copy
