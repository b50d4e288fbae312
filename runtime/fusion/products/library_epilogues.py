"""Epilogues of products on a GPU, where a library computes a product and its epilogue in one call or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runtime.fusion.element_graph import InputLeaf, Leaf
from runtime.fusion.element_operations import array_shape
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.products.product_fusion import ProductFusion
from runtime.fusion.view_path import through
from runtime.program.gelu import GELU_OPCODES
from runtime.program.gemm_epilogue import AUX_MULTIPLE, gemm_epilogue
from runtime.program.records.loop import LoopLeaf, Numbers, OperandElements
from runtime.program.scalar_program import ScalarOp
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape


def is_for_library(
    plan: ProductFusion, product: HloInstruction, inputs: Mapping[HloInstruction, int]
) -> bool:
    """Return whether a library computes the fusion ``plan`` of ``product`` in one call.

    inputs: numbers of the operands, which the decision takes to be dense. The back end computes the product and the
    epilogue one after the other if an operand turns out to have another layout.
    """
    epilogue = plan.epilogue
    if not isinstance(epilogue, LoopFusion) or epilogue.starts:
        return False
    (piece,) = epilogue.pieces
    lhs, rhs = (x.array_shape.element_type for x in product.operands)
    views = [result.view for result in piece.results]
    if piece.targets or not all(view.is_dense for view in views):
        return False
    shapes = {number: array_shape(x) for x, number in inputs.items()}
    number = max(inputs.values()) + 1
    shapes[number] = product.array_shape
    leaves = [_dense_leaf(leaf, shapes) for leaf in piece.graph.leaves]
    first_column = plan.batch + plan.rows
    keeps_product = plan.product_result is not None
    found = gemm_epilogue(
        piece.graph.program, leaves, number, first_column, keeps_product=keeps_product
    )
    if found is None or not found.suits(lhs, rhs, views[found.result].element_type):
        return False
    uses_aux = keeps_product or found.saved is not None or found.aux is not None
    return not uses_aux or math.prod(plan.dims[first_column:]) % AUX_MULTIPLE == 0


def overwritten_by_library(plan: ProductFusion) -> tuple[tuple[int, int], ...]:
    """Return the pairs (result, input) of ``plan`` that may share memory if a library computes it in one call.

    C may be D. Nothing states that gelu's arguments may be where C or D is, so a call with gelu overwrites nothing.
    """
    epilogue = plan.epilogue
    assert isinstance(epilogue, LoopFusion), "a library computes it"
    steps = epilogue.pieces[0].graph.program.steps
    opcodes = {step.signature.opcode for step in steps if isinstance(step, ScalarOp)}
    return () if opcodes & GELU_OPCODES else plan.overwrites


def _dense_leaf(leaf: Leaf, shapes: Mapping[int, ArrayShape]) -> LoopLeaf:
    """Return what ``leaf`` reads if the operands, whose ``shapes`` are given by number, are dense."""
    if not isinstance(leaf, InputLeaf):
        return Numbers(leaf.counting, leaf.shifts)
    view = through(leaf.path, StridedView.dense(shapes[leaf.number]))
    assert view is not None, "strides express all reads of a loop"
    return OperandElements(leaf.number, view)
