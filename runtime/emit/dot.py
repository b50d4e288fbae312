"""Lowering of dot to products of matrices [batch.., m, k] and [batch.., k, n].

Operands that BLAS cannot read in place are copied first.
"""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.gemm.choose import plan_dot
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Order, Views
from runtime.program.dot_matrices import (
    is_for_blas,
    operand_dims,
    result_matrices,
    unread_operands,
)
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DotAttrs
from spmd.ops.dot import dot_sizes
from spmd.ops.product_precision import allows_tf32
from spmd.shape import ArrayShape


def writes(instruction: HloInstruction, order: Order) -> bool:
    """Return whether the result can be written in dimension order ``order``.

    BLAS can do so if the rows or the columns of each product are contiguous.
    """
    views = tuple(StridedView.dense(operand.array_shape) for operand in instruction.operands)
    if product_kernel(instruction, views) is None:
        return False
    return is_for_blas(
        result_matrices(instruction, StridedView.dense_in_order(instruction.array_shape, order))
    )


def product_kernel(instruction: HloInstruction, views: Views) -> DotKernel | None:
    """Return the kernel of a dot, or None if the reference evaluator must compute it.

    The evaluator computes dots with unusual attributes, and types for which ``plan_dot`` has no accumulator type.
    """
    types = (
        views[0].element_type,
        views[1].element_type,
        instruction.array_shape.element_type,
    )
    attrs = instruction.attrs_as(DotAttrs)
    if attrs.extra:
        return None
    lhs, _ = operand_dims(instruction)
    batch = tuple(views[0].dims[d] for d in lhs.batch)
    _, sizes = dot_sizes(instruction)
    return plan_dot(batch, sizes, types, tf32=allows_tf32(attrs))


def scratch(instruction: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays through which the kernel converts operands and result."""
    kernel = product_kernel(instruction, views)
    return () if kernel is None else scratch_of(kernel)


def scratch_of(kernel: DotKernel) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays of ``kernel``."""
    return tuple(ArrayShape(kernel.compute, dims) for dims in kernel.scratch_dims())


def emit_dot(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a dot: a DotKernel, or a call of the reference evaluator."""
    kernel = product_kernel(instruction, tuple(a.view for a in arrays.operands))
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    operands = []
    for operand, array in zip(operand_dims(instruction), arrays.operands, strict=True):
        matrix = operand.as_matrix(array.view)
        assert matrix is not None
        operands.append(ArrayView(array.slice, _plain_unit_strides(matrix)))
    (result,) = arrays.results
    matrix = result_matrices(instruction, result.view)
    assert matrix is not None
    out = ArrayView(result.slice, _plain_unit_strides(matrix))
    return KernelThunk(instruction.name, kernel, tuple(operands), (out,), arrays.scratch)


def _plain_unit_strides(view: StridedView) -> StridedView:
    """Return ``view`` with strides for which BLAS accepts its matrices.

    The stride of a dimension of size 1 is arbitrary. It becomes the stride of a dense matrix, since BLAS checks leading
    dimensions.
    """
    strides = list(view.strides)
    item = view.element_type.byte_size
    rows, columns = view.dims[-2:]
    if columns == 1:
        strides[-1] = item if rows == 1 or strides[-2] != item else rows * item
    if rows == 1:
        strides[-2] = item if columns > 1 and strides[-1] != item else columns * item
    return StridedView(view.element_type, view.dims, tuple(strides), view.offset)


LOWERINGS.add(
    Opcode.DOT, Lowering(emit_dot, layouts=unread_operands, writes=writes, scratch=scratch)
)
