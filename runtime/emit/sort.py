"""Lowering of sort and topk to kernels, or to the reference evaluator if the comparator has no native code."""

from __future__ import annotations

import math

from runtime.codegen.ir.element_operations import has_operation
from runtime.cpu.kernels.sort.sort import scratch_bytes
from runtime.emit.reference import emit_with
from runtime.emit.scalar_program import scalar_program
from runtime.lowering import LOWERINGS, Lowering
from runtime.program.records.loop import one_operation
from runtime.program.records.sort import RANK, SortKernel
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.ops.attrs import SortAttrs, TopKAttrs
from spmd.shape import ArrayShape, PrimitiveType


def sort_kernel(instruction: HloInstruction) -> SortKernel | None:
    """Return the kernel of a sort, or None if the reference evaluator must compute it.

    The kernel requires a comparator that is a scalar program of known operations, and an array that is neither empty
    nor too large.
    """
    comparator = scalar_program(instruction.to_apply)
    if comparator is None or not _is_countable(instruction.operand(0).dims):
        return None
    kinds = tuple(operand.array_shape.element_type for operand in instruction.operands)
    if comparator.parameters != tuple(kind for kind in kinds for _ in range(2)):
        return None
    axis = instruction.attrs_as(SortAttrs).dimension
    size = instruction.operand(0).dims[axis]
    return SortKernel(comparator, axis, size, size, with_indices=False)


def topk_kernel(instruction: HloInstruction) -> SortKernel | None:
    """Return the kernel of a topk, or None if the reference evaluator must compute it."""
    attrs = instruction.attrs_as(TopKAttrs)
    return top_kernel(instruction.operand(0).array_shape, attrs.k, largest=attrs.largest)


def top_kernel(shape: ArrayShape, count: int, *, largest: bool) -> SortKernel | None:
    """Return the kernel of top-k of the last dimension of ``shape``, or None if it has no native code.

    Floats are compared in total order, in which nan is larger than every number. ``count`` is k. largest: the largest
    elements, else the smallest.
    """
    kind = shape.element_type
    order = CompareAttrs("GT" if largest else "LT", "TOTALORDER" if kind.is_floating else "")
    signature = ElementSignature(Opcode.COMPARE, (kind, kind), PrimitiveType.PRED, order)
    if count == 0 or not has_operation(signature) or not _is_countable(shape.dims):
        return None
    comparator = one_operation(signature)
    return SortKernel(comparator, shape.rank - 1, shape.dims[-1], count, with_indices=True)


def _is_countable(dims: tuple[int, ...]) -> bool:
    """Return whether an array of sizes ``dims`` is not empty, has a supported rank, and has indices of 31 bits."""
    return math.prod(dims) > 0 and 1 <= len(dims) <= RANK + 1 and max(dims) < 1 << 31


def sort_scratch_of(kernel: SortKernel | None) -> tuple[ArrayShape, ...]:
    """Return the shape of the working memory of ``kernel``, or no shape if that is None."""
    return () if kernel is None else (ArrayShape(PrimitiveType.U8, (scratch_bytes(kernel),)),)


LOWERINGS.add(
    Opcode.SORT,
    Lowering(emit_with(sort_kernel), scratch=lambda call, _: sort_scratch_of(sort_kernel(call))),
)
LOWERINGS.add(
    Opcode.TOPK,
    Lowering(emit_with(topk_kernel), scratch=lambda call, _: sort_scratch_of(topk_kernel(call))),
)
