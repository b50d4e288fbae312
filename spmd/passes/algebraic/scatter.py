"""scatter: one element per row of a constant array."""

from __future__ import annotations

import math

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ScatterAttrs
from spmd.ops.reduction import reduction_kind
from spmd.passes.algebraic.match import splat
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType

#: Types of indices that number the elements of any dimension.
_WIDE = (PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.S64, PrimitiveType.U64)


@simplifies(Opcode.SCATTER)
def one_element_per_row(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """scatter(0, i, u) that adds one element to each row => select(iota == i, 0 + u, 0)

    The gradient of choosing one element per row is such a scatter, for example that of the loss of a classification.
    """
    if x.num_operands != 3:
        return None
    attrs = x.attrs_as(ScatterAttrs)
    operand, indices, updates = x.operands
    rows, column = attrs.input_batching_dims, attrs.scatter_dims_to_operand_dims
    if column != attrs.inserted_window_dims or not len(column) == 1 == len(x.dims) - len(rows):
        return None
    kind = indices.array_shape.element_type
    if kind not in _WIDE or splat(operand) is None:
        return None
    if reduction_kind(x.to_apply) is not ReductionKind.SUM:
        return None
    batching, size = attrs.scatter_indices_batching_dims, indices.array_shape.num_elements
    if size != math.prod(indices.dims[d] for d in batching):
        return None  # several elements per row
    row_of = [rows[n] for n in sorted(range(len(rows)), key=batching.__getitem__)]
    order = sorted(range(len(rows)), key=row_of.__getitem__)

    def along_rows(values: HloInstruction) -> HloInstruction:
        long = b.reshape_to(values, [x.dims[d] for d in row_of])
        return b.broadcast(b.transpose_by(long, order), sorted(row_of), x.dims)

    hit = b.compare(along_rows(indices), b.iota(kind, x.dims, column[0]), "EQ")
    start = b.full(updates.array_shape.without_layout(), splat(operand))
    return b.select(hit, along_rows(b.add(start, updates)), operand)
