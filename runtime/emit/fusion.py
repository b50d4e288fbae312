"""Fusions: one kernel each, made by the emitter that ``runtime.fusion.emitters`` names."""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.fusion.element_graph import InputLeaf, Leaf
from runtime.fusion.emitters import emitted
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.view_path import through
from runtime.kernels.loop import LoopKernel, LoopLeaf, Numbers, OperandElements
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.strides import StridedView
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode


def emit_fusion(fusion: HloInstruction, arrays: StepArrays, _: Device) -> Thunk:
    kernel = loop_kernel(emitted(fusion).plan, arrays.operands)
    return KernelThunk(fusion.name, kernel, arrays.operands, arrays.results)


def loop_kernel(plan: LoopFusion, operands: tuple[ArrayView, ...]) -> LoopKernel:
    leaves = tuple(_leaf(leaf, operands) for leaf in plan.graph.leaves)
    return LoopKernel(plan.dims, plan.graph.program, leaves, plan.results)


def _leaf(leaf: Leaf, operands: tuple[ArrayView, ...]) -> LoopLeaf:
    if not isinstance(leaf, InputLeaf):
        return Numbers(leaf.counting)
    operand = operands[leaf.number].view
    view = through(leaf.path, operand)
    assert view is not None, "layouts has asked for an operand that can be read this way"
    shifted = StridedView(view.element_type, view.dims, view.strides, view.offset - operand.offset)
    return OperandElements(leaf.number, shifted)


def layouts(fusion: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Operands that no strides can read as they lie (a reshape of what is transposed) must be row-major."""
    return {
        leaf.number: tuple(range(len(views[leaf.number].dims)))
        for leaf in emitted(fusion).plan.graph.leaves
        if isinstance(leaf, InputLeaf) and through(leaf.path, views[leaf.number]) is None
    }


def in_place(fusion: HloInstruction) -> tuple[tuple[int, int], ...]:
    return emitted(fusion).plan.overwrites


LOWERINGS.add(Opcode.FUSION, Lowering(emit_fusion, in_place, layouts))
