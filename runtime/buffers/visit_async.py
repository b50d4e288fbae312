"""Collectives in two halves: from a start to its done, operands and results are in use."""

from __future__ import annotations

from runtime.buffers.linearizer import VISITORS, Linearizer
from runtime.buffers.program import (
    DoneStep,
    Region,
    Tree,
    subtree,
    tree_leaves,
)
from spmd.errors import VerificationError
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ShapeIndex

#: Where a start's result tuple holds the collective's result.
_RESULT_OF_START: dict[Opcode, ShapeIndex] = {
    Opcode.ALL_REDUCE_START: (),
    Opcode.ALL_GATHER_START: (1,),
    Opcode.COLLECTIVE_PERMUTE_START: (1,),
    Opcode.ASYNC_START: (1,),
}
_DONE = frozenset(
    {
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
    }
)


@VISITORS.register(*_DONE)
def visit_done(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Wait for a start: until here its operands may not be written, nor its results touched."""
    source = instruction.operand(0)
    start = linearizer.starts.get(source)
    if start is None:
        raise VerificationError(f"{instruction!r} waits for what is no start of a collective")
    tree = subtree(operands[0], _RESULT_OF_START[source.opcode])
    views = (*start.operands, *tree_leaves(tree))
    step = DoneStep(instruction, linearizer.next_position(), region, views, start=start)
    region.steps.append(step)
    linearizer.read(step, views, step.position, region)
    return tree


@VISITORS.register(*_RESULT_OF_START)
def visit_start(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """(operands, results, ...) where the start has a tuple of both, else the results."""
    index = _RESULT_OF_START[instruction.opcode]
    step_tree = linearizer.add_step(instruction, operands, region)
    step = region.steps[-1]
    linearizer.starts[instruction] = step
    if not index:
        return step_tree
    results = subtree(step_tree, index)
    kept = {leaf.value for leaf in tree_leaves(results)}
    linearizer.values = [v for v in linearizer.values if v in kept or v not in step.results]
    step.results = tuple(v for v in step.results if v in kept)
    first = operands[0] if len(operands) == 1 else operands
    assert isinstance(step_tree, tuple)
    return (first, *step_tree[1:])
