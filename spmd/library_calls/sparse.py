"""Products of matrices in compressed rows with dense ones (jax.experimental.sparse)."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.ops.attrs import GatherAttrs, ScatterAttrs, WindowAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType

_S32 = PrimitiveType.S32


@LIBRARY_CALLS.register("cpu_csr_sparse_dense_ffi")
def rows_by_dense(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the product of a matrix of m rows with x [k] or [k, n].

    Operands are the values [nnz], the first value of each row and the end of the last [m + 1], the values' columns
    [nnz], and x. Each value multiplies a row of x, and is added to the row of the result that it is in: the number of
    rows that end before or at the value.
    """
    require_operands(call, operands, 4)
    values, first, columns, x = operands
    (count,), (ends,) = values.dims, first.dims
    if columns.dims != (count,) or ends < 1 or len(x.dims) not in (1, 2):
        raise UnsupportedError(f"{call!r}: these are no compressed rows")
    kind, rows, width = x.array_shape.element_type, ends - 1, x.dims[1:]
    zeros = b.full(ArrayShape(kind, (rows, *width)), 0)
    if not zeros.array_shape.num_elements or not count:
        return (zeros,)
    gathers = GatherAttrs(tuple(range(1, 1 + len(width))), (0,), (0,), 1, (1, *width))
    taken = b.create(Opcode.GATHER, (x, _as_vectors(columns, b)), gathers)
    products = b.multiply(taken, b.broadcast(values, (0,), (count, *width)))
    return (_added(zeros, _rows_of(first, rows, count, b), products, b),)


def _rows_of(first: HloInstruction, rows: int, count: int, b: Builder) -> HloInstruction:
    """Return the row of each of ``count`` values: values behind the last row are in row ``rows``."""
    ends = b.slice(first, (1,), (rows + 1,))
    ones = b.full(ArrayShape(_S32, (rows,)), 1)
    ended = _added(b.full(ArrayShape(_S32, (count,)), 0), ends, ones, b)
    window = Window((WindowDimension(size=count, padding_low=count - 1),))
    return b.create(
        Opcode.REDUCE_WINDOW,
        (ended, b.scalar(_S32, 0)),
        WindowAttrs(window),
        calls=(b.scope.reducer(ReductionKind.SUM, _S32),),
    )


def _added(
    array: HloInstruction, rows: HloInstruction, updates: HloInstruction, b: Builder
) -> HloInstruction:
    """Add ``updates`` to the rows with these ascending numbers; those beyond the end are left out."""
    attrs = ScatterAttrs(tuple(range(1, len(updates.dims))), (0,), (0,), 1, indices_are_sorted=True)
    reducer = b.scope.reducer(ReductionKind.SUM, array.array_shape.element_type)
    operands = (array, _as_vectors(rows, b), updates)
    return b.create(Opcode.SCATTER, operands, attrs, calls=(reducer,))


def _as_vectors(numbers: HloInstruction, b: Builder) -> HloInstruction:
    """Return index vectors of one component."""
    return b.reshape(numbers, (*numbers.dims, 1))
