"""Visitors of instructions that run computations: call, while, conditional."""

from __future__ import annotations

from runtime.buffers.forwarding import carried_leaves
from runtime.buffers.linearizer import VISITORS, Linearizer, leaf_name, rebuild
from runtime.buffers.program import (
    Branch,
    Carried,
    Region,
    ScheduledConditional,
    ScheduledWhile,
    Tree,
    ValueView,
    tree_leaves,
)
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape, leaves


@VISITORS.register(Opcode.CALL)
def visit_call(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Insert the callee's ops in place of the call."""
    return linearizer.run_computation(instruction.to_apply, operands, region)


@VISITORS.register(Opcode.WHILE)
def visit_while(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Add a loop. State leaves that every trip passes on unchanged are views of the input; the others get a value."""
    (state,) = operands
    inits = tree_leaves(state)
    changed = carried_leaves(instruction)
    arrays = [
        (leaf_name(instruction.name, index), shape)
        for index, shape in leaves(instruction.shape)
        if isinstance(shape, ArrayShape)
    ]
    views = [
        init if leaf in changed else linearizer.in_space(instruction, name, init, shape, region)
        for leaf, (init, (name, shape)) in enumerate(zip(inits, arrays, strict=True))
    ]
    op = ScheduledWhile(instruction, linearizer.next_position(), region)
    region.ops.append(op)
    for leaf in changed:
        init, (name, stated) = inits[leaf], arrays[leaf]
        shape = ArrayShape(init.view.element_type, init.view.dims)
        value = linearizer.new_value(name, shape, region, op.position, stated.memory_space)
        views[leaf] = linearizer.full_view(value)
        op.carried.append(Carried(leaf, value, init, init))
    op.operands = tuple(c.init for c in op.carried)
    op.results = tuple(c.value for c in op.carried)
    linearizer.read(op, op.operands, op.position, region)
    tree = rebuild(instruction.shape, iter(views))

    op.condition = linearizer.open_region(instruction.while_condition.name, region)
    predicate = linearizer.run_computation(instruction.while_condition, (tree,), op.condition)
    assert isinstance(predicate, ValueView)
    op.predicate = predicate
    linearizer.close_region(op.condition)
    linearizer.read(op, (predicate,), op.condition.end, op.condition)

    op.body = linearizer.open_region(instruction.while_body.name, region)
    roots = tree_leaves(linearizer.run_computation(instruction.while_body, (tree,), op.body))
    carried_values = {c.value for c in op.carried}
    for carried in op.carried:
        root = roots[carried.leaf]
        carried.root = linearizer.own_copy(instruction, carried.leaf, root, carried_values, op.body)
    linearizer.close_region(op.body)
    linearizer.read(op, tuple(c.root for c in op.carried), op.body.end, op.body)
    op.end = linearizer.next_position()
    op.condition.loop_end = op.body.loop_end = op.end
    return tree


@VISITORS.register(Opcode.CONDITIONAL)
def visit_conditional(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Add a conditional with a region for each branch. Each result leaf gets a value, which all branches write."""
    selector, *arguments = operands
    assert isinstance(selector, ValueView)
    op = ScheduledConditional(instruction, linearizer.next_position(), region, (selector,))
    region.ops.append(op)
    linearizer.read(op, op.operands, op.position, region)
    tree = linearizer.new_results(op, instruction.shape)
    op.results = tuple(leaf.value for leaf in tree_leaves(tree))
    for computation, argument in zip(instruction.called_computations, arguments, strict=True):
        branch = linearizer.open_region(computation.name, region)
        roots = tuple(tree_leaves(linearizer.run_computation(computation, (argument,), branch)))
        linearizer.close_region(branch)
        linearizer.read(op, roots, branch.end, branch)
        op.branches.append(Branch(branch, roots))
    return tree
