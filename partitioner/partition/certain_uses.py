"""States in which a value is certain to be used, whatever state is chosen for it.

An annotation, a loop's carried state and the computation's result are fixed before any op is partitioned. Another op
that uses the value is not fixed: it may adapt to the state it is given. Only the fixed states enter the cost of an op's
result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitioner.annotations.reader import CONSTRAINT_TARGETS
from partitioner.partition.shard_state import ShardState
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.custom_call import custom_call_target
from spmd.shape import Shape, as_tuple, leaves

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext


def demanded_states(
    context: PartitionContext, instruction: HloInstruction, leaf: int
) -> tuple[ShardState, ...]:
    """Return the states, each once, in the order of the users."""
    found: dict[ShardState, None] = {}
    _collect(context, instruction, leaf, found)
    return tuple(found)


def _collect(
    context: PartitionContext,
    instruction: HloInstruction,
    leaf: int,
    found: dict[ShardState, None],
) -> None:
    if instruction is context.source.root:
        found[context.root_states[leaf]] = None
    for user in instruction.users:
        if user.opcode is Opcode.TUPLE:
            for position, operand in enumerate(user.operands):
                if operand is instruction:
                    _collect(context, user, _first_leaf(user.shape, position) + leaf, found)
        elif user.opcode is Opcode.GET_TUPLE_ELEMENT:
            first = _first_leaf(instruction.shape, user.attrs_as(TupleIndexAttrs).index)
            if 0 <= leaf - first < sum(1 for _ in leaves(user.shape)):
                _collect(context, user, leaf - first, found)
        elif user.opcode is Opcode.WHILE or custom_call_target(user) in CONSTRAINT_TARGETS:
            found[context.wanted(user, leaf)] = None


def _first_leaf(shape: Shape, index: int) -> int:
    """Return the index of the first leaf of element ``index`` of a tuple, among the tuple's leaves."""
    return sum(1 for element in as_tuple(shape).elements[:index] for _ in leaves(element))
