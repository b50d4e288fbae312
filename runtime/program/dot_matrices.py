"""Views of the operands and the result of a dot as matrices [batch.., rows, columns]."""

from __future__ import annotations

import math

from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class OperandDims:
    """Dimensions of one operand of a dot by their role in the matrices [batch.., rows, columns]."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """All dimensions of the operand in the order of the matrices."""
        return (*self.batch, *self.rows, *self.columns)

    def as_matrix(self, view: StridedView) -> StridedView | None:
        """Return ``view`` as matrices [batch.., rows, columns], or None if strides cannot describe them."""
        sorted_view = view.transpose(self.order)
        batch = sorted_view.dims[: len(self.batch)]
        rows = math.prod(view.dims[d] for d in self.rows)
        columns = math.prod(view.dims[d] for d in self.columns)
        return sorted_view.reshape((*batch, rows, columns))


def operand_dims(instruction: HloInstruction) -> tuple[OperandDims, OperandDims]:
    """Return the dimensions of lhs as [batch.., m, k], and those of rhs as [batch.., k, n]."""
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
    """Return whether the matrices of the last two dimensions have contiguous rows or columns that do not overlap.

    BLAS requires that. ``view`` None stands for matrices that strides cannot describe, for which the answer is False.
    """
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
    """Return the operands that BLAS cannot read in place, as {operand: dimension order of a copy, slowest first}.

    views: current layouts of both operands.
    """
    return {
        i: operand.order
        for i, (operand, view) in enumerate(zip(operand_dims(instruction), views, strict=True))
        if not is_for_blas(operand.as_matrix(view))
    }


def result_matrices(instruction: HloInstruction, view: StridedView) -> StridedView | None:
    """Return ``view``, the result's, as matrices [batch.., m, n], or None if strides cannot describe them."""
    attrs = instruction.attrs_as(DotAttrs)
    batch = len(attrs.lhs_batch)
    rows = instruction.operand(0).array_shape.rank - len(attrs.lhs_contracting)
    dims = view.dims
    return view.reshape((*dims[:batch], math.prod(dims[batch:rows]), math.prod(dims[rows:])))


def transposed_operands(
    instruction: HloInstruction, views: tuple[StridedView, StridedView]
) -> tuple[bool, bool]:
    """Return whether the matrices of lhs, and of rhs, are stored column-major."""
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
    """Return the element types of lhs, rhs and the result."""
    lhs, rhs = (x.array_shape.element_type for x in instruction.operands)
    return lhs, rhs, instruction.array_shape.element_type
