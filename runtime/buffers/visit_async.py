"""Visitors of asynchronous collectives, whose operands and results are in use from the start to the done."""

from __future__ import annotations

from runtime.buffers.linearizer import VISITORS, Linearizer
from runtime.buffers.program import (
    Region,
    ScheduledDone,
    Tree,
    subtree,
    tree_leaves,
)
from spmd.errors import VerificationError
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode_roles import DONES
from spmd.shape import ShapeIndex, TupleShape, as_tuple

#: Index of the collective's result in the result of its start.
_RESULT_OF_START: dict[Opcode, ShapeIndex] = {
    Opcode.ALL_REDUCE_START: (),
    Opcode.ALL_GATHER_START: (1,),
    Opcode.COLLECTIVE_PERMUTE_START: (1,),
    Opcode.ASYNC_START: (1,),
}


@VISITORS.register(*DONES)
def visit_done(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Add the wait for a start. Until then its operands must not be written, and its results must not be accessed.

    Raises VerificationError if the operand is no start of a collective.
    """
    source = instruction.operand(0)
    start = linearizer.starts.get(source)
    if start is None:
        raise VerificationError(f"{instruction!r} waits for what is no start of a collective")
    tree = subtree(operands[0], _RESULT_OF_START[source.opcode])
    views = (*start.operands, *tree_leaves(tree))
    op = ScheduledDone(instruction, linearizer.next_position(), region, views, start=start)
    region.ops.append(op)
    linearizer.read(op, views, op.position, region)
    return tree


@VISITORS.register(*_RESULT_OF_START)
def visit_start(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Add a start. Returns (operands, results, contexts...) if its shape is such a tuple, else the results.

    Contexts have no values.
    """
    index = _RESULT_OF_START[instruction.opcode]
    results = linearizer.add_step(instruction, operands, region, index)
    linearizer.starts[instruction] = region.ops[-1]
    if not index:
        return results
    elements = as_tuple(instruction.shape).elements
    first = operands if isinstance(elements[0], TupleShape) else operands[0]
    return (first, results, *(None for _ in elements[2:]))
