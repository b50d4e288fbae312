"""Costs of a conditional and of the selects that may replace it."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.analysis.cost import op_cost
from spmd.cost.elements import OPERATIONS_PER_BYTE, OPERATIONS_PER_FUNCTION
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops import definition
from spmd.ops.attrs import TupleIndexAttrs
from spmd.shape import TupleShape

#: Ops that add no cost to a kernel.
_FREE = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BROADCAST,
    }
)


def selects_pay(x: HloInstruction) -> bool:
    """Return whether selects among the results of the conditional `x` take less time than its cheapest branch.

    They gain what elementwise readers of a result would read again: branches and readers become one kernel, so that the
    result is neither written nor read. They lose the operands and the operations of the branches that are not chosen.
    """
    saved = 2 * sum(result.shape.byte_size for result in _results(x) if _is_fused(result))
    if not saved:
        return False
    reads = [
        _read(branch, operand)
        for branch, operand in zip(x.called_computations, x.operands[1:], strict=True)
    ]
    every = {source: size for one in reads for source, size in one.items()}
    more = sum(every.values()) - min(sum(one.values()) for one in reads)
    work = [_operations(branch) for branch in x.called_computations]
    return OPERATIONS_PER_BYTE * (saved - more) > sum(work) - min(work)


def _results(x: HloInstruction) -> Iterable[HloInstruction]:
    """Return the arrays that users read of `x`; nothing where some reads it as a tuple."""
    if not isinstance(x.shape, TupleShape):
        return [x]
    users = x.users
    is_taken_apart = all(user.opcode is Opcode.GET_TUPLE_ELEMENT for user in users)
    return users if is_taken_apart and not x.is_root else []


def _is_fused(result: HloInstruction) -> bool:
    """Return whether elementwise operations alone read `result`."""
    return (
        not isinstance(result.shape, TupleShape)
        and not result.is_root
        and result.num_users > 0
        and all(definition(user.opcode).elementwise for user in result.users)
    )


def _read(branch: HloComputation, operand: HloInstruction) -> dict[tuple[HloInstruction, int], int]:
    """Return the bytes of each value outside that `branch` reads, by (value, 0) or (tuple, element)."""
    (parameter,) = branch.parameters
    if not isinstance(parameter.shape, TupleShape):
        return {(operand, 0): parameter.shape.byte_size} if parameter.num_users else {}
    found = {}
    for read in parameter.users:
        if read.opcode is not Opcode.GET_TUPLE_ELEMENT:
            return {(operand, -1): parameter.shape.byte_size}
        index = read.attrs_as(TupleIndexAttrs).index
        is_tuple = operand.opcode is Opcode.TUPLE
        source = (operand.operand(index), 0) if is_tuple else (operand, index)
        found[source] = read.shape.byte_size
    return found


def _operations(branch: HloComputation) -> float:
    return sum(
        x.array_shape.num_elements + OPERATIONS_PER_FUNCTION * op_cost(x).transcendentals
        for x in branch.instructions
        if x.opcode not in _FREE
    )
