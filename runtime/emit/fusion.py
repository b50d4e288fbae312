"""Fusions: one kernel each, made by the emitter that ``runtime.fusion.emitters`` names."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import ArrayView
from runtime.fusion.element_graph import ElementGraph, InputLeaf, Leaf
from runtime.fusion.emitters import Plan
from runtime.fusion.loop_fusion import LoopFusion, LoopPiece
from runtime.fusion.planned import planned
from runtime.fusion.row_fusion import RowFusion, Source
from runtime.fusion.view_path import shifts, through
from runtime.kernel import Kernel
from runtime.kernels.loop import (
    LoopKernel,
    LoopLeaf,
    Numbers,
    OperandElements,
    PiecesKernel,
    StartsStage,
    UpdateKernel,
)
from runtime.kernels.rows import PassLeaves, RowKernel, RowLeaf
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.strides import StridedView
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape

Operands = tuple[ArrayView, ...]


def emit_fusion(fusion: HloInstruction, arrays: StepArrays, _: Device) -> Thunk:
    kernel = kernel_of(planned(fusion).plan, arrays.operands)
    return KernelThunk(fusion.name, kernel, arrays.operands, arrays.results, arrays.scratch)


def kernel_of(plan: Plan, operands: Operands) -> Kernel:
    """The kernel that computes ``plan`` from operands that lie so."""
    starts = tuple(
        StartsStage(each.program, tuple(loop_leaf(leaf, operands) for leaf in each.leaves))
        for each in plan.starts
    )
    if isinstance(plan, LoopFusion):
        pieces = tuple(_loop(piece, operands, starts) for piece in plan.pieces)
        if plan.updates:
            return UpdateKernel(pieces, plan.updates)
        return pieces[0] if len(pieces) == 1 else PiecesKernel(pieces)
    return RowKernel(
        plan,
        tuple(
            PassLeaves(
                row_leaves(plan, each.elements, operands),
                row_leaves(plan, each.inits, operands),
                row_leaves(plan, each.rows, operands),
            )
            for each in plan.passes
        ),
        starts,
    )


def _loop(piece: LoopPiece, operands: Operands, starts: tuple[StartsStage, ...]) -> LoopKernel:
    leaves = tuple(loop_leaf(leaf, operands) for leaf in piece.graph.leaves)
    return LoopKernel(
        piece.dims,
        piece.graph.program,
        leaves,
        tuple(each.view for each in piece.results),
        starts,
        tuple(each.shifts for each in piece.results),
        piece.ranges,
    )


def loop_leaf(leaf: Leaf, operands: Operands) -> LoopLeaf:
    if not isinstance(leaf, InputLeaf):
        return Numbers(leaf.counting, leaf.shifts)
    operand = operands[leaf.number].view
    view = through(leaf.path, operand)
    assert view is not None, "layouts has asked for an operand that can be read this way"
    shifted = StridedView(view.element_type, view.dims, view.strides, view.offset - operand.offset)
    return OperandElements(leaf.number, shifted, shifts(leaf.path, operand))


def row_leaves(plan: RowFusion, graph: ElementGraph, operands: Operands) -> tuple[RowLeaf, ...]:
    return tuple(
        plan.inputs[leaf.number]
        if isinstance(leaf, InputLeaf) and plan.inputs[leaf.number].source is not Source.OPERAND
        else loop_leaf(leaf, operands)
        for leaf in graph.leaves
    )


def operand_leaves(plan: Plan) -> Iterator[InputLeaf]:
    """Everything that is read of operands."""
    graphs = (
        [piece.graph for piece in plan.pieces]
        if isinstance(plan, LoopFusion)
        else [graph for each in plan.passes for graph in (each.elements, each.inits, each.rows)]
    )
    for graph in (*graphs, *plan.starts):
        for leaf in graph.leaves:
            if isinstance(leaf, InputLeaf) and _is_operand(plan, leaf):
                yield leaf


def _is_operand(plan: Plan, leaf: InputLeaf) -> bool:
    return isinstance(plan, LoopFusion) or plan.inputs[leaf.number].source is Source.OPERAND


def layouts(fusion: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Operands that no strides can read as they lie (a reshape of what is transposed) must be row-major."""
    plan = planned(fusion).plan
    unread = {
        leaf.number
        for leaf in operand_leaves(plan)
        if through(leaf.path, views[leaf.number]) is None
    }
    if isinstance(plan, LoopFusion):
        results = fused_results(fusion)
        unread.update(
            number for n, number in plan.updates if views[number].reshape(results[n].dims) is None
        )
    return {number: tuple(range(len(views[number].dims))) for number in sorted(unread)}


def fused_results(fusion: HloInstruction) -> tuple[HloInstruction, ...]:
    """What the fused computation gives, one after the other."""
    root = fusion.to_apply.root
    return root.operands if root.opcode is Opcode.TUPLE else (root,)


def in_place(fusion: HloInstruction) -> tuple[tuple[int, int], ...]:
    return planned(fusion).plan.overwrites


def scratch(fusion: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    plan = planned(fusion).plan
    return () if isinstance(plan, LoopFusion) else plan.scratch


LOWERINGS.add(Opcode.FUSION, Lowering(emit_fusion, in_place, layouts=layouts, scratch=scratch))
