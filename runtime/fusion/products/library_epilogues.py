"""Epilogues on a GPU, where a library computes a product or convolution and its epilogue in one call or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runtime.fusion.element_graph import InputLeaf, Leaf
from runtime.fusion.element_operations import array_shape
from runtime.fusion.loop_fusion import LoopFusion, LoopPiece
from runtime.fusion.products.convolution_fusion import ConvolutionFusion, is_forward
from runtime.fusion.products.product_fusion import ProductFusion
from runtime.fusion.view_path import through
from runtime.program.convolution_epilogue import convolution_epilogue, is_computed
from runtime.program.gelu import GELU_OPCODES
from runtime.program.gemm_epilogue import AUX_MULTIPLE, gemm_epilogue
from runtime.program.records.loop import LoopLeaf, Numbers, OperandElements
from runtime.program.scalar_program import ScalarOp
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.ops.attrs import ConvolutionAttrs
from spmd.ops.product_precision import allows_tf32
from spmd.shape import ArrayShape


def is_for_library(
    plan: ProductFusion | ConvolutionFusion,
    product: HloInstruction,
    inputs: Mapping[HloInstruction, int],
) -> bool:
    """Return whether a library computes the fusion ``plan`` of ``product``, which may be a convolution, in one call.

    inputs: numbers of the operands, which the decision takes to be dense. The back end computes the product and the
    epilogue one after the other if an operand turns out to have another layout.
    """
    if isinstance(plan, ConvolutionFusion):
        return _is_for_cudnn(plan, product, inputs)
    return _is_for_cublas(plan, product, inputs)


def _is_for_cublas(
    plan: ProductFusion, product: HloInstruction, inputs: Mapping[HloInstruction, int]
) -> bool:
    epilogue = plan.epilogue
    if not isinstance(epilogue, LoopFusion) or epilogue.starts:
        return False
    (piece,) = epilogue.pieces
    lhs, rhs = (x.array_shape.element_type for x in product.operands)
    views = [result.view for result in piece.results]
    if piece.targets or not all(view.is_dense for view in views):
        return False
    number = max(inputs.values()) + 1
    leaves = _dense_leaves(piece, {**inputs, product: number})
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


def _is_for_cudnn(
    plan: ConvolutionFusion, convolution: HloInstruction, inputs: Mapping[HloInstruction, int]
) -> bool:
    if not is_forward(convolution) or plan.epilogue.starts:
        return False
    (piece,) = plan.epilogue.pieces
    arrays = (*convolution.operands, convolution)
    kinds = tuple(x.array_shape.element_type for x in arrays)
    result = piece.results[0].view
    tf32 = allows_tf32(convolution.attrs_as(ConvolutionAttrs))
    if len(piece.results) > 1 or not result.is_dense:
        return False
    number = max(inputs.values()) + 1
    leaves = _dense_leaves(piece, {**inputs, convolution: number})
    features = len(piece.dims) - 1
    epilogue = convolution_epilogue(piece.graph.program, leaves, number, features)
    return epilogue is not None and is_computed(kinds, result.element_type, tf32=tf32)


def _dense_leaves(piece: LoopPiece, inputs: Mapping[HloInstruction, int]) -> list[LoopLeaf]:
    """Return what the leaves of ``piece`` read if all ``inputs`` are dense."""
    shapes = {number: array_shape(x) for x, number in inputs.items()}
    return [_dense_leaf(leaf, shapes) for leaf in piece.graph.leaves]


def _dense_leaf(leaf: Leaf, shapes: Mapping[int, ArrayShape]) -> LoopLeaf:
    """Return what ``leaf`` reads if the operands, whose ``shapes`` are given by number, are dense."""
    if not isinstance(leaf, InputLeaf):
        return Numbers(leaf.counting, leaf.shifts)
    view = through(leaf.path, StridedView.dense(shapes[leaf.number]))
    assert view is not None, "strides express all reads of a loop"
    return OperandElements(leaf.number, view)
