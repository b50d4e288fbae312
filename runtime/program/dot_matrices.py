"""Operands and result of a dot as matrices [batch.., rows, columns], if strides can describe them."""

from __future__ import annotations

import math

from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class OperandDims:
    """Dimensions of one operand by their role."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return (*self.batch, *self.rows, *self.columns)

    def as_matrix(self, view: StridedView) -> StridedView | None:
        """Return the view [batch.., rows, columns]; None if no strides describe it."""
        sorted_view = view.transpose(self.order)
        batch = sorted_view.dims[: len(self.batch)]
        rows = math.prod(view.dims[d] for d in self.rows)
        columns = math.prod(view.dims[d] for d in self.columns)
        return sorted_view.reshape((*batch, rows, columns))


def operand_dims(instruction: HloInstruction) -> tuple[OperandDims, OperandDims]:
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
        OperandDims(attrs.lhs_batch, free[0], attrs.lhs_contracting),
        OperandDims(attrs.rhs_batch, attrs.rhs_contracting, free[1]),
    )


def is_for_blas(view: StridedView | None) -> bool:
    """Return whether rows or columns are contiguous and do not overlap, as BLAS requires."""
    if view is None:
        return False
    if view.num_elements == 0:
        return True
    (rows, columns), (down, right) = view.dims[-2:], view.strides[-2:]
    item = view.element_type.byte_size
    by_row = (columns == 1 or right == item) and (rows == 1 or down >= columns * item)
    by_column = (rows == 1 or down == item) and (columns == 1 or right >= rows * item)
    return by_row or by_column


def unread_operands(
    instruction: HloInstruction, views: tuple[StridedView, ...]
) -> dict[int, tuple[int, ...]]:
    """Return the operands that must be copied before they are multiplied, with their dimensions, slowest first."""
    return {
        i: operand.order
        for i, (operand, view) in enumerate(zip(operand_dims(instruction), views, strict=True))
        if not is_for_blas(operand.as_matrix(view))
    }


def result_matrices(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return the result as [batch.., lhs free, rhs free]; None if no strides describe it."""
    attrs = instruction.attrs_as(DotAttrs)
    batch = len(attrs.lhs_batch)
    rows = instruction.operand(0).array_shape.rank - len(attrs.lhs_contracting)
    dims = view.dims
    return view.reshape((*dims[:batch], math.prod(dims[batch:rows]), math.prod(dims[rows:])))


def product_sizes(instruction: HloInstruction) -> tuple[int, int, int]:
    """Return m, k and n of each product: rows of lhs, columns of lhs, columns of rhs."""
    lhs, rhs = operand_dims(instruction)
    left, right = (operand.dims for operand in instruction.operands)
    m, k = (math.prod(left[d] for d in dims) for dims in (lhs.rows, lhs.columns))
    return m, k, math.prod(right[d] for d in rhs.columns)


def transposed_operands(
    instruction: HloInstruction, views: tuple[StridedView, StridedView]
) -> tuple[bool, bool]:
    """Return whether lhs and rhs are stored transposed: column by column instead of row by row."""
    transposed = []
    for operand, view, lines in zip(operand_dims(instruction), views, (-1, -2), strict=True):
        matrix = operand.as_matrix(view)
        item = view.element_type.byte_size
        lies_along = matrix is not None and matrix.strides[lines] == item
        transposed.append(lies_along == (lines == -2))
    return transposed[0], transposed[1]


def product_types(
    instruction: HloInstruction,
) -> tuple[PrimitiveType, PrimitiveType, PrimitiveType]:
    """Return the types of lhs, rhs and the result."""
    lhs, rhs = (x.array_shape.element_type for x in instruction.operands)
    return lhs, rhs, instruction.array_shape.element_type
