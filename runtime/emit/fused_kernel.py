"""Construction of loop and row kernels from the plan of a fusion and the layouts of its operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.buffers.types import ArrayView
from runtime.emit.row_order import runs_along_rows
from runtime.fusion.element_graph import ElementGraph, InputLeaf, Leaf
from runtime.fusion.indexed.index_fusion import IndexFusion
from runtime.fusion.loop_fusion import LoopFusion, LoopPiece
from runtime.fusion.row_fusion import RowFusionPlan
from runtime.fusion.view_path import shifts, through
from runtime.program.kernel import Kernel
from runtime.program.records.loop import (
    LoopKernel,
    LoopLeaf,
    Numbers,
    OperandElements,
    PiecesKernel,
    StartsStage,
    UpdateKernel,
)
from runtime.program.records.rows import PassLeaves, RowKernel, RowLeaf, Source
from runtime.program.strides import StridedView

Operands = tuple[ArrayView, ...]


def kernel_of(plan: LoopFusion | RowFusionPlan, operands: Operands) -> Kernel:
    """Return the kernel that computes ``plan`` on ``operands``, the operands of the fusion with their layouts."""
    starts = starts_of(plan.starts, operands)
    if isinstance(plan, LoopFusion):
        pieces = tuple(_loop(piece, operands, starts) for piece in plan.pieces)
        if plan.updates:
            return UpdateKernel(pieces, plan.updates)
        return pieces[0] if len(pieces) == 1 else PiecesKernel(pieces)
    leaves = tuple(
        PassLeaves(
            row_leaves(plan, each.elements, operands),
            row_leaves(plan, each.inits, operands),
            row_leaves(plan, each.rows, operands),
        )
        for each in plan.graphs
    )
    return RowKernel(plan.fusion, leaves, starts, runs_along_rows(plan.fusion, leaves))


def starts_of(graphs: Sequence[ElementGraph], operands: Operands) -> tuple[StartsStage, ...]:
    """Return the stages that compute run-time starts, one for each of ``graphs``."""
    return tuple(
        StartsStage(each.program, tuple(loop_leaf(leaf, operands) for leaf in each.leaves))
        for each in graphs
    )


def _loop(piece: LoopPiece, operands: Operands, starts: tuple[StartsStage, ...]) -> LoopKernel:
    """Return the kernel of one piece of a loop fusion."""
    leaves = tuple(loop_leaf(leaf, operands) for leaf in piece.graph.leaves)
    return LoopKernel(
        piece.dims,
        piece.graph.program,
        leaves,
        tuple(each.view for each in piece.results),
        starts,
        tuple(each.shifts for each in piece.results),
        piece.ranges,
        piece.targets,
    )


def loop_leaf(leaf: Leaf, operands: Operands) -> LoopLeaf:
    """Return the elements that ``leaf`` reads, for these layouts of the operands, which must be readable this way."""
    if not isinstance(leaf, InputLeaf):
        return Numbers(leaf.counting, leaf.shifts)
    operand = operands[leaf.number].view
    view = through(leaf.path, operand)
    assert view is not None, "layouts has asked for an operand that can be read this way"
    shifted = StridedView(view.element_type, view.dims, view.strides, view.offset - operand.offset)
    return OperandElements(leaf.number, shifted, shifts(leaf.path, operand))


def row_leaves(plan: RowFusionPlan, graph: ElementGraph, operands: Operands) -> tuple[RowLeaf, ...]:
    """Return the leaves of one of the graphs of a row fusion, for these layouts of the operands."""
    return tuple(
        plan.inputs[leaf.number]
        if isinstance(leaf, InputLeaf) and plan.inputs[leaf.number].source is not Source.OPERAND
        else loop_leaf(leaf, operands)
        for leaf in graph.leaves
    )


def operand_leaves(plan: LoopFusion | RowFusionPlan | IndexFusion) -> Iterator[InputLeaf]:
    """Yield all leaves of ``plan`` that read elements of operands, including those of the run-time starts."""
    if isinstance(plan, IndexFusion):
        yield from plan.graph.input_leaves
        return
    graphs = (
        [piece.graph for piece in plan.pieces]
        if isinstance(plan, LoopFusion)
        else [graph for each in plan.graphs for graph in (each.elements, each.inits, each.rows)]
    )
    for graph in (*graphs, *plan.starts):
        for leaf in graph.input_leaves:
            if _is_operand(plan, leaf):
                yield leaf


def _is_operand(plan: LoopFusion | RowFusionPlan, leaf: InputLeaf) -> bool:
    """Return whether ``leaf`` reads an operand of the fusion."""
    return isinstance(plan, LoopFusion) or plan.inputs[leaf.number].source is Source.OPERAND
