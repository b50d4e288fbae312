"""Cholesky factorizations by cuSOLVER, and solutions of triangular systems by cuBLAS."""

from __future__ import annotations

from runtime.gpu.libraries.factor_selection import failure_program, selection_program
from runtime.gpu.libraries.linalg_work import SolverCall, SolverFunction, TriangularSolve
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.program.records.linalg import CholeskyKernel, TriangularSolveKernel
from runtime.program.records.loop import LoopKernel, LoopLeaf, Numbers, OperandElements
from runtime.program.strides import StridedView, dense_strides
from spmd.shape import PrimitiveType

#: Element types of matrices that cuSOLVER and cuBLAS support.
KINDS = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128)
_S32 = PrimitiveType.S32


def accepts(builder: SequenceBuilder) -> bool:
    """Return whether the libraries support the element type of the builder's first operand, and it has elements."""
    view = builder.operands[0].view
    return view.element_type in KINDS and view.num_elements > 0


def as_columns(array: SequenceArray) -> SequenceArray:
    """Return column-major matrices as the library calls take them: a packed array [batch..., columns, rows]."""
    view = array.view
    rank = len(view.dims)
    order = (*range(rank - 2), rank - 1, rank - 2)
    return SequenceArray(array.kind, array.number, view.transpose(order))


@in_sequence(CholeskyKernel)
def cholesky(kernel: CholeskyKernel, builder: SequenceBuilder) -> bool:
    """Add a factorization of a copy by potrf, which overwrites both triangles, and a kernel that selects the result.

    potrf always gets a column-major lower triangle, for which it is faster. A row-major upper triangle is one without a
    transposition. Returns False if the libraries do not support the operand.
    """
    if not accepts(builder):
        return False
    (source,), (result, *infos) = builder.operands, builder.results
    dims, kind = source.view.dims, source.view.element_type
    copy = builder.room(kind, dims, by_columns=kernel.lower)
    info = builder.room(_S32, dims[:-2])
    builder.copy(source, copy)
    call = SolverCall(SolverFunction.POTRF, "L")
    builder.call(call, as_columns(copy) if kernel.lower else copy, info)
    selection = _selection(kernel, copy.view, source.view, result.view)
    builder.kernel(selection, (copy, info, source), (result,))
    for failed in infos:
        builder.kernel(_failures(copy.view, failed.view), (copy, info), (failed,))
    return True


def _selection(
    kernel: CholeskyKernel, copy: StridedView, source: StridedView, result: StridedView
) -> LoopKernel:
    """Return the kernel that computes the factor (results[0]) from (output of potrf, info, operand)."""
    dims = copy.dims
    leaves: list[LoopLeaf] = [
        OperandElements(0, copy),
        OperandElements(0, _last_pivots(copy, dims)),
        OperandElements(1, _infos(dims, 2)),
        Numbers(StridedView(PrimitiveType.S64, dims, (*(0 for _ in dims[:-2]), 1, 0))),
        Numbers(StridedView(PrimitiveType.S64, dims, (*(0 for _ in dims[:-2]), 0, 1))),
    ]
    if not kernel.clears:
        leaves.append(OperandElements(2, from_first(source)))
    program = selection_program(copy.element_type, lower=kernel.lower, clears=kernel.clears)
    return LoopKernel(dims, program, tuple(leaves), (from_first(result),))


def _failures(copy: StridedView, failed: StridedView) -> LoopKernel:
    """Return the kernel that computes the failure flags (results[1]) from (output of potrf, info)."""
    batch = copy.dims[:-2]
    pivots = _last_pivots(copy, (*batch, 1, 1))
    pivot = StridedView(copy.element_type, batch, pivots.strides[:-2], pivots.offset)
    leaves = (OperandElements(0, pivot), OperandElements(1, _infos(batch, 0)))
    return LoopKernel(batch, failure_program(copy.element_type), leaves, (from_first(failed),))


def _last_pivots(copy: StridedView, dims: tuple[int, ...]) -> StridedView:
    """Return a view in which each element of a matrix is the last diagonal element of that matrix (strides 0)."""
    offset = (copy.dims[-1] - 1) * sum(copy.strides[-2:])
    return StridedView(copy.element_type, dims, (*copy.strides[:-2], 0, 0), offset)


def _infos(dims: tuple[int, ...], repeated: int) -> StridedView:
    """Return a view of one packed s32 for each matrix, broadcast over the last ``repeated`` dimensions."""
    packed = dense_strides(dims[: len(dims) - repeated], _S32.byte_size)
    return StridedView(_S32, dims, (*packed, *(0,) * repeated))


def from_first(view: StridedView) -> StridedView:
    """Return ``view`` with offset 0, relative to a pointer to its first element."""
    return StridedView(view.element_type, view.dims, view.strides)


@in_sequence(TriangularSolveKernel)
def triangular_solve(kernel: TriangularSolveKernel, builder: SequenceBuilder) -> bool:
    """Add the solution of a triangular system by trsm. Returns False if the libraries do not support the operand.

    cuBLAS reads the row-major matrices as their transposes, so it solves the transposed system: left and right, and
    lower and upper, are exchanged.
    """
    if not accepts(builder):
        return False
    (triangles, sides), (result,) = builder.operands, builder.results
    attrs = kernel.attrs
    op = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[attrs.transpose_a]
    call = TriangularSolve(not attrs.left_side, not attrs.lower, op, attrs.unit_diagonal)
    if not triangles.view.is_packed:
        packed = builder.room(triangles.view.element_type, triangles.view.dims)
        builder.copy(triangles, packed)
        triangles = packed
    target = result
    if not result.view.is_packed:
        target = builder.room(result.view.element_type, result.view.dims)
    builder.copy(sides, target)
    builder.call(call, triangles, target)
    if target is not result:
        builder.copy(target, result)
    return True
