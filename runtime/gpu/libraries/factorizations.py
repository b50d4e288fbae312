"""LU, QR, eigenvalue and singular value decompositions by cuSOLVER, which overwrites column-major matrices."""

from __future__ import annotations

import math
from functools import cache

from runtime.gpu.libraries.linalg import accepts, as_columns, from_first
from runtime.gpu.libraries.linalg_work import SolverCall, SolverFunction
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.program.program_builder import ProgramBuilder
from runtime.program.records.linalg import FactorizationKernel, Routine
from runtime.program.records.loop import LoopKernel, OperandElements
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.shape import COMPLEX_PARTS, PrimitiveType

_S32 = PrimitiveType.S32
#: Most library calls for one kernel. For a larger batch of small matrices the host's own decompositions are faster than
#: one library call for each.
_MOST_CALLS = 1024
#: Most rows and columns of matrices that cuSOLVER's gesvdjBatched decomposes.
BATCHED_VALUES = 32


@in_sequence(FactorizationKernel)
def factorization(kernel: FactorizationKernel, builder: SequenceBuilder) -> bool:
    """Add the stages of a decomposition. Returns False if the libraries do not support the operand."""
    if not accepts(builder):
        return False
    _STAGES[kernel.routine](kernel, builder)
    return True


def _getrf(_: FactorizationKernel, builder: SequenceBuilder) -> None:
    (source,), (lu, pivots, info) = builder.operands, builder.results
    copy = _by_columns(source, builder)
    call = _call(SolverFunction.GETRF, source, builder)
    builder.call(call, as_columns(copy), builder.packed(pivots), builder.packed(info))
    builder.copy(copy, lu)


def _geqrf(_: FactorizationKernel, builder: SequenceBuilder) -> None:
    (source,), (qr, tau) = builder.operands, builder.results
    copy = _by_columns(source, builder)
    info = builder.room(_S32, source.view.dims[:-2])
    call = _call(SolverFunction.GEQRF, source, builder)
    builder.call(call, as_columns(copy), builder.packed(tau), info)
    builder.copy(copy, qr)


def _orgqr(_: FactorizationKernel, builder: SequenceBuilder) -> None:
    (source, tau), (q,) = builder.operands, builder.results
    copy = _by_columns(source, builder)
    info = builder.room(_S32, source.view.dims[:-2])
    if not tau.view.is_packed:
        packed = builder.room(tau.view.element_type, tau.view.dims)
        builder.copy(tau, packed)
        tau = packed
    builder.call(_call(SolverFunction.ORGQR, source, builder), as_columns(copy), tau, info)
    builder.copy(copy, q)


def _syevd(kernel: FactorizationKernel, builder: SequenceBuilder) -> None:
    (source,), (vectors, values, info) = builder.operands, builder.results
    copy = _by_columns(source, builder)
    call = SolverCall(SolverFunction.SYEVD, kernel.flag)
    builder.call(call, as_columns(copy), builder.packed(values), builder.packed(info))
    builder.copy(copy, vectors)


def _gesdd(kernel: FactorizationKernel, builder: SequenceBuilder) -> None:
    """Add the stages of a singular value decomposition. The kernel's first result is a copy of the operand."""
    (source,), (a, values, u, vh, info) = builder.operands, builder.results
    rows, columns = source.view.dims[-2:]
    outputs = builder.packed(values), builder.packed(info)
    if math.prod(source.view.dims[:-2]) > 1 and max(rows, columns) <= BATCHED_VALUES:
        _jacobi(kernel.flag, builder, *outputs)
    else:
        _gesvd(kernel.flag, builder, *outputs)
    if kernel.flag == "N":
        for vectors in (u, vh):
            builder.zeros(vectors)
    builder.copy(source, a)


def _gesvd(flag: str, builder: SequenceBuilder, values: SequenceArray, info: SequenceArray) -> None:
    """Add a decomposition by gesvd, which requires at least as many rows as columns.

    A matrix a with more columns than rows is decomposed as its transpose: a^T = vh^T s u^T. No transposition is needed,
    since cuSOLVER reads a row-major matrix as its transpose.
    """
    (source,), (_a, _values, u, vh, _info) = builder.operands, builder.results
    rows, columns = source.view.dims[-2:]
    is_tall, kind = rows >= columns, source.view.element_type
    rooms = []
    for view in (source.view, u.view, vh.view):
        dims = (0,) if flag == "N" and view is not source.view else view.dims
        rooms.append(builder.room(kind, dims, by_columns=is_tall and len(dims) > 1))
    copy, left, right = rooms
    builder.copy(source, copy)
    seen = [as_columns(room) if is_tall and flag != "N" else room for room in (left, right)]
    if not is_tall:
        seen.reverse()
    call = _call(SolverFunction.GESVD, source, builder, flag)
    builder.call(call, as_columns(copy) if is_tall else copy, values, *seen, info)
    if flag != "N":
        builder.copy(left, u)
        builder.copy(right, vh)


def _jacobi(
    flag: str, builder: SequenceBuilder, values: SequenceArray, info: SequenceArray
) -> None:
    """Add a decomposition of a batch of small matrices by gesvdjBatched, which computes all singular vectors.

    cuSOLVER returns v instead of its adjoint vh, so complex vectors are conjugated.
    """
    (source,), (_a, _values, u, vh, _info) = builder.operands, builder.results
    *batch, rows, columns = source.view.dims
    kind = source.view.element_type
    copy = _by_columns(source, builder)
    left = builder.room(kind, (*batch, rows, rows), by_columns=True)
    right = builder.room(kind, (*batch, columns, columns))  # v by columns is v^T by rows
    call = SolverCall(SolverFunction.GESVDJ, "N" if flag == "N" else "A")
    builder.call(call, as_columns(copy), values, as_columns(left), right, info)
    if flag != "N":
        builder.copy(_first(left, u.view.dims), u)
        transposed = _first(right, vh.view.dims)
        if kind in COMPLEX_PARTS:
            leaf = OperandElements(0, from_first(transposed.view))
            conjugate = LoopKernel(vh.view.dims, _conjugate(kind), (leaf,), (from_first(vh.view),))
            builder.kernel(conjugate, (transposed,), (vh,))
        else:
            builder.copy(transposed, vh)


def _call(
    function: SolverFunction, source: SequenceArray, builder: SequenceBuilder, flag: str = ""
) -> SolverCall:
    """Return the call of ``function``. The builder fails if the batch ``source`` needs more than _MOST_CALLS calls."""
    call = SolverCall(function, flag)
    *batch, rows, columns = source.view.dims
    count = math.prod(batch)
    if count > _MOST_CALLS and not call.is_batched_by_cublas(count, rows, columns):
        builder.fails = True
    return call


def _by_columns(source: SequenceArray, builder: SequenceBuilder) -> SequenceArray:
    """Return a column-major copy of ``source`` in the workspace."""
    copy = builder.room(source.view.element_type, source.view.dims, by_columns=True)
    builder.copy(source, copy)
    return copy


def _first(room: SequenceArray, dims: tuple[int, ...]) -> SequenceArray:
    """Return the part of ``room`` that has the first ``dims[d]`` elements along each dimension d."""
    view = room.view
    part = StridedView(view.element_type, dims, view.strides, view.offset)
    return SequenceArray(room.kind, room.number, part)


@cache
def _conjugate(kind: PrimitiveType) -> ScalarProgram:
    """Return the program that conjugates an element of the complex type ``kind``."""
    part = COMPLEX_PARTS[kind]
    program = ProgramBuilder(kind)
    real, imaginary = program.op(Opcode.REAL, part, 0), program.op(Opcode.IMAG, part, 0)
    negated = program.op(Opcode.NEGATE, part, imaginary)
    return program.giving(program.op(Opcode.COMPLEX, kind, real, negated))


_STAGES = {
    Routine.GETRF: _getrf,
    Routine.GEQRF: _geqrf,
    Routine.ORGQR: _orgqr,
    Routine.SYEVD: _syevd,
    Routine.GESDD: _gesdd,
}
