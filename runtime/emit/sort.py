"""sort and topk in native code where it knows the comparator, else by the reference evaluator."""

from __future__ import annotations

import math

from runtime.codegen.element_operations import ElementSignature, has_operation
from runtime.codegen.llvm_words import RANK
from runtime.codegen.scalar_program import ScalarOp, ScalarProgram
from runtime.emit.reference import emit_reference
from runtime.emit.scalar_program import scalar_program
from runtime.kernels.sort import SortKernel
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CompareAttrs, SortAttrs, TopKAttrs
from spmd.shape import ArrayShape, PrimitiveType


def sort_kernel(instruction: HloInstruction) -> SortKernel | None:
    """None where only the evaluator will do."""
    comparator = scalar_program(instruction.to_apply)
    if comparator is None or not _is_countable(instruction):
        return None
    kinds = tuple(operand.array_shape.element_type for operand in instruction.operands)
    if comparator.parameters != tuple(kind for kind in kinds for _ in range(2)):
        return None
    axis = instruction.attrs_as(SortAttrs).dimension
    size = instruction.operand(0).dims[axis]
    return SortKernel(comparator, axis, size, size, with_places=False)


def topk_kernel(instruction: HloInstruction) -> SortKernel | None:
    """By total order, in which NaN is larger than every number."""
    kind = instruction.operand(0).array_shape.element_type
    largest = instruction.attrs_as(TopKAttrs).largest
    order = CompareAttrs("GT" if largest else "LT", "TOTALORDER" if kind.is_floating else "")
    signature = ElementSignature(Opcode.COMPARE, (kind, kind), PrimitiveType.PRED, order)
    if not has_operation(signature) or not _is_countable(instruction):
        return None
    comparator = ScalarProgram((kind, kind), (ScalarOp(signature, (0, 1)),), (2,))
    dims, count = instruction.operand(0).dims, instruction.attrs_as(TopKAttrs).k
    if count == 0:
        return None
    return SortKernel(comparator, len(dims) - 1, dims[-1], count, with_places=True)


def _is_countable(instruction: HloInstruction) -> bool:
    """Whether native code has enough counters, and places fit 31 bits. Nothing is sorted where there is nothing."""
    dims = instruction.operand(0).dims
    return math.prod(dims) > 0 and 1 <= len(dims) <= RANK + 1 and max(dims) < 1 << 31


def _scratch(kernel: SortKernel | None) -> tuple[ArrayShape, ...]:
    return () if kernel is None else (ArrayShape(PrimitiveType.U8, (kernel.scratch_bytes,)),)


def sort_scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    return _scratch(sort_kernel(instruction))


def topk_scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    return _scratch(topk_kernel(instruction))


def emit_sort(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    kernel = sort_kernel(instruction)
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results, arrays.scratch)


def emit_topk(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    kernel = topk_kernel(instruction)
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results, arrays.scratch)


LOWERINGS.add(Opcode.SORT, Lowering(emit_sort, scratch=sort_scratch))
LOWERINGS.add(Opcode.TOPK, Lowering(emit_topk, scratch=topk_scratch))
