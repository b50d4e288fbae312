"""Copies of computations and modules."""

from __future__ import annotations

from collections.abc import Callable

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule


def clone_module(module: HloModule) -> HloModule:
    """Return a deep copy of all that the entry reaches: same names, same order; attribute records are shared."""
    copy = HloModule(module.name)
    copy_header(module, copy)
    callees: dict[HloComputation, HloComputation] = {}
    for computation in module.computations_post_order():
        callees[computation] = clone_computation(computation, copy, callees.__getitem__)
    copy.entry = callees[module.entry]
    return copy


def copy_header(source: HloModule, target: HloModule) -> None:
    """Copy everything that a module holds besides its computations."""
    target.stage = source.stage
    target.entry_layout = source.entry_layout
    target.input_output_alias = source.input_output_alias
    target.buffer_donors = source.buffer_donors
    target.frontend_attributes = source.frontend_attributes
    target.file_tables = source.file_tables
    target.carried = source.carried
    target.host_functions = source.host_functions
    copy_configuration(source, target)


def copy_configuration(source: HloModule, target: HloModule) -> None:
    """Copy the header's fields that describe the compilation and not the program; a bare proto does not hold them."""
    target.num_partitions = source.num_partitions
    target.replica_count = source.replica_count
    target.states_partitions = source.states_partitions
    target.extra_header = source.extra_header


def clone_computation(
    computation: HloComputation,
    module: HloModule,
    callee: Callable[[HloComputation], HloComputation],
) -> HloComputation:
    """Copy a computation into ``module`` (the same or another), in the same order; ``callee`` maps those it calls."""
    copy = module.new_computation(computation.name)
    copy.execution_thread = computation.execution_thread
    copy.annotations = computation.annotations
    made: dict[HloInstruction, HloInstruction] = {}
    for instruction in computation.post_order():
        clone = instruction.clone(instruction.shape, [made[o] for o in instruction.operands])
        clone.called_computations = [callee(c) for c in instruction.called_computations]
        made[instruction] = copy.add(clone)
        for before in instruction.control_predecessors:
            made[before].add_control_dependency_to(clone)
    copy.root = made[computation.root]
    # The stored order may be a schedule; post-order need not equal it.
    copy.set_order(dict.fromkeys(made[i] for i in computation.instructions))
    return copy
