"""Preparation of a module for the partitioner: no calls, and one caller for every control-flow computation."""

from __future__ import annotations

from partitioner.annotations.constant_splitter import split_constants
from partitioner.devices.device_order import list_other_orders
from partitioner.ops.custom_partitioning import open_without_partitioner
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.ops.attrs import CallAttrs, CustomCallAttrs
from spmd.ops.custom_call import is_sharding_annotation
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.async_inliner import AsyncInliner
from spmd.passes.bitcast_decomposer import BitcastDecomposer
from spmd.passes.call_inliner import CallInliner
from spmd.passes.common_subexpression_elimination import CommonSubexpressionElimination
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.dynamic_index_splitter import DynamicIndexSplitter
from spmd.passes.dynamic_padder import DynamicPadder
from spmd.passes.flatten_call_graph import FlattenCallGraph
from spmd.passes.library_call_expander import LibraryCallExpander
from spmd.passes.reducer_simplifier import ReducerSimplifier
from spmd.passes.rewrite import is_annotated
from spmd.passes.tuple_simplifier import TupleSimplifier
from spmd.shape import ArrayShape


def prepare(module: HloModule) -> None:
    """Expand bitcasts and library calls, inline, simplify reducers, make run-time sizes explicit, give each loop and
    branch its own computations, and clean up, so that fewer ops need a sharding.
    """
    list_other_orders(module)
    BitcastDecomposer().run(module)
    LibraryCallExpander().run(module)
    _open_fusions(module)
    AsyncInliner(collectives=True).run(module)
    open_without_partitioner(module)
    _pin_shardings(module)
    CallInliner().run(module)
    _drop_annotations_in_reducers(module)
    ReducerSimplifier().run(module)
    DynamicIndexSplitter().run(module)
    DynamicPadder().run(module)
    FlattenCallGraph().run(module)
    TupleSimplifier().run(module)
    AlgebraicSimplifier().run(module)
    CommonSubexpressionElimination().run(module)
    DeadCodeElimination().run(module)
    split_constants(module)
    module.remove_unreachable_computations()


def _open_fusions(module: HloModule) -> None:
    """Turn fusions into calls: their computations are partitioned like other code, and fused again afterwards."""
    for computation in module.computations:
        for fusion in computation.with_opcode(Opcode.FUSION):
            call = computation.create(
                Opcode.CALL,
                fusion.shape,
                fusion.operands,
                CallAttrs(),
                name=fusion.name,
                called_computations=fusion.called_computations,
                sharding=fusion.sharding,
                annotations=fusion.annotations,
            )
            computation.replace(fusion, call)


def _pin_shardings(module: HloModule) -> None:
    """Turn a sharding on a call, or on the entry's only output, into a ``Sharding`` call: inlining and simplifying
    replace the instruction that carries it.
    """
    root = module.entry.root
    for computation in module.computations:
        for call in computation.with_opcode(Opcode.CALL):
            _pin_sharding(computation, call)
    if root is module.entry.root and isinstance(root.shape, ArrayShape):
        _pin_sharding(module.entry, root)


def _pin_sharding(computation: HloComputation, value: HloInstruction) -> None:
    if not is_annotated(value) or value.opcode in (Opcode.PARAMETER, Opcode.CUSTOM_CALL):
        return
    pinned = computation.create(
        Opcode.CUSTOM_CALL,
        value.shape,
        attrs=CustomCallAttrs("Sharding"),
        sharding=value.sharding,
        annotations=value.annotations,
    )
    value.replace_all_uses_with(pinned)
    pinned.set_operands([value])


def _drop_annotations_in_reducers(module: HloModule) -> None:
    """Remove ``Sharding`` calls in reducers, where a value is one element. JAX writes such calls."""
    for computation in module.computations_post_order():
        for instruction in computation.instructions:
            if instruction.opcode in CALLERS:
                continue
            for callee in instruction.called_computations:
                for call in callee.with_opcode(Opcode.CUSTOM_CALL):
                    if is_sharding_annotation(call):
                        callee.replace(call, call.operand(0))
