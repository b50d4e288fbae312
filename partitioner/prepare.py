"""Brings a module into the form the partitioner reads: no calls, every control-flow computation with one caller."""

from __future__ import annotations

from partitioner.annotations import custom_call_target
from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.hlo.clone import clone_computation
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.call_inliner import CallInliner
from spmd.passes.common_subexpression_elimination import CommonSubexpressionElimination
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.tuple_simplifier import TupleSimplifier

#: Targets that stand for their operand once a reducer is looked at element by element.
_ELEMENT_IDENTITIES = frozenset({"Sharding", "xla.sdy.FuncResultSharding"})


def prepare(module: HloModule) -> None:
    """Inline, give each loop and branch its own computations, and clean up, so that fewer ops need a sharding."""
    CallInliner().run(module)
    _drop_annotations_in_reducers(module)
    _unshare_control_flow(module)
    TupleSimplifier().run(module)
    AlgebraicSimplifier().run(module)
    CommonSubexpressionElimination().run(module)
    DeadCodeElimination().run(module)
    module.remove_unreachable_computations()


def _drop_annotations_in_reducers(module: HloModule) -> None:
    """JAX writes ``Sharding`` calls even inside reducers, where a value is one element."""
    for computation in module.computations_post_order():
        for instruction in computation.instructions:
            if instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL):
                continue
            for callee in instruction.called_computations:
                for call in callee.with_opcode(Opcode.CUSTOM_CALL):
                    if custom_call_target(call) in _ELEMENT_IDENTITIES:
                        callee.replace(call, call.operand(0))


def _unshare_control_flow(module: HloModule) -> None:
    """A loop body or branch that two instructions call is copied: each call may shard its values differently."""
    seen: set[int] = set()

    def own(computation: HloComputation) -> HloComputation:
        if id(computation) not in seen:
            seen.add(id(computation))
            return computation
        return clone_computation(computation, module, lambda c: c)

    work = [module.entry]
    while work:
        for instruction in work.pop().instructions:
            if instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL):
                instruction.called_computations = [own(c) for c in instruction.called_computations]
                seen.update(id(c) for c in instruction.called_computations)
                work.extend(instruction.called_computations)
