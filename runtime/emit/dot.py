"""dot as products of matrices [batch.., m, k] and [batch.., k, n], laid out anew where BLAS cannot read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.emit.reference import emit_reference
from runtime.kernels.dot import DotKernel
from runtime.lowering import LOWERINGS, Device, Lowering, Order, StepArrays, Views
from runtime.strides import StridedView
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class _Operand:
    """Dimensions of one operand by what they are."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return (*self.batch, *self.rows, *self.columns)

    def as_matrix(self, view: StridedView) -> StridedView | None:
        """[batch.., rows, columns], or None where no strides say it."""
        sorted_view = view.transpose(self.order)
        batch = sorted_view.dims[: len(self.batch)]
        rows = math.prod(view.dims[d] for d in self.rows)
        columns = math.prod(view.dims[d] for d in self.columns)
        return sorted_view.reshape((*batch, rows, columns))


def _operands(instruction: HloInstruction) -> tuple[_Operand, _Operand]:
    attrs = instruction.attrs_as(DotAttrs)
    free = [
        tuple(d for d in range(len(operand.dims)) if d not in (*batch, *contracting))
        for operand, batch, contracting in zip(
            instruction.operands,
            (attrs.lhs_batch, attrs.rhs_batch),
            (attrs.lhs_contracting, attrs.rhs_contracting),
            strict=True,
        )
    ]
    return (
        _Operand(attrs.lhs_batch, free[0], attrs.lhs_contracting),
        _Operand(attrs.rhs_batch, attrs.rhs_contracting, free[1]),
    )


def is_for_blas(view: StridedView | None) -> bool:
    """Rows or columns lie without gaps, and the other direction steps over whole ones."""
    if view is None:
        return False
    if view.num_elements == 0:
        return True
    (rows, columns), (down, right) = view.dims[-2:], view.strides[-2:]
    item = view.element_type.byte_size
    by_row = (columns == 1 or right == item) and (rows == 1 or down >= columns * item)
    by_column = (rows == 1 or down == item) and (columns == 1 or right >= rows * item)
    return by_row or by_column


def layouts(instruction: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    return {
        i: operand.order
        for i, (operand, view) in enumerate(zip(_operands(instruction), views, strict=True))
        if not is_for_blas(operand.as_matrix(view))
    }


def _as_matrices(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """The result as [batch.., lhs free, rhs free], or None where no strides say it."""
    attrs = instruction.attrs_as(DotAttrs)
    batch = len(attrs.lhs_batch)
    rows = instruction.operand(0).array_shape.rank - len(attrs.lhs_contracting)
    dims = view.dims
    return view.reshape((*dims[:batch], math.prod(dims[batch:rows]), math.prod(dims[rows:])))


def writes(instruction: HloInstruction, order: Order) -> bool:
    """Whether BLAS can write the result in this order: rows of each product lie in a run, or its columns do."""
    views = tuple(StridedView.dense(operand.array_shape) for operand in instruction.operands)
    if _kernel(instruction, views) is None:
        return False
    return is_for_blas(
        _as_matrices(instruction, StridedView.dense_in_order(instruction.array_shape, order))
    )


def _kernel(instruction: HloInstruction, views: Views) -> DotKernel | None:
    """None where no BLAS type computes it exactly."""
    lhs, rhs = _operands(instruction)
    sizes = views[0].dims, views[1].dims
    k = math.prod(sizes[0][d] for d in lhs.columns)
    types = (
        views[0].element_type,
        views[1].element_type,
        instruction.array_shape.element_type,
    )
    if instruction.attrs_as(DotAttrs).extra:
        return None
    batch = tuple(sizes[0][d] for d in lhs.batch)
    m = math.prod(sizes[0][d] for d in lhs.rows)
    n = math.prod(sizes[1][d] for d in rhs.columns)
    return DotKernel.planned(batch, (m, k, n), types)


def scratch(instruction: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    kernel = _kernel(instruction, views)
    if kernel is None:
        return ()
    return tuple(ArrayShape(kernel.compute, dims) for dims in kernel.scratch_dims())


def emit_dot(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    kernel = _kernel(instruction, tuple(a.view for a in arrays.operands))
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    operands = []
    for operand, array in zip(_operands(instruction), arrays.operands, strict=True):
        matrix = operand.as_matrix(array.view)
        assert matrix is not None
        operands.append(ArrayView(array.slice, _plain_unit_strides(matrix)))
    (result,) = arrays.results
    matrix = _as_matrices(instruction, result.view)
    assert matrix is not None
    out = ArrayView(result.slice, _plain_unit_strides(matrix))
    return KernelThunk(instruction.name, kernel, tuple(operands), (out,), arrays.scratch)


def _plain_unit_strides(view: StridedView) -> StridedView:
    """Give dimensions of size 1 the stride they would have in a dense array: BLAS wants leading dimensions."""
    strides = list(view.strides)
    item = view.element_type.byte_size
    rows, columns = view.dims[-2:]
    if columns == 1:
        strides[-1] = item if rows == 1 or strides[-2] != item else rows * item
    if rows == 1:
        strides[-2] = item if columns > 1 and strides[-1] != item else columns * item
    return StridedView(view.element_type, view.dims, tuple(strides), view.offset)


LOWERINGS.add(Opcode.DOT, Lowering(emit_dot, layouts=layouts, writes=writes, scratch=scratch))
