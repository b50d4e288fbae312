"""Lowering of cholesky and triangular-solve to kernels that call LAPACK and BLAS."""

from __future__ import annotations

from runtime.cpu.libraries.lapack import lapack_function, trsm_function
from runtime.emit.reference import emit_with
from runtime.lowering import LOWERINGS, Lowering, Order, Views
from runtime.program.kernel import Kernel
from runtime.program.records.linalg import CholeskyKernel, TriangularSolveKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CholeskyAttrs, TriangularSolveAttrs


def cholesky_kernel(instruction: HloInstruction) -> Kernel | None:
    """Return the kernel of a cholesky, or None if LAPACK is missing or does not support the type."""
    if lapack_function("potrf", instruction.operand(0).array_shape.element_type) is None:
        return None
    return CholeskyKernel(instruction.attrs_as(CholeskyAttrs).lower, clears=True)


def triangular_solve_kernel(
    instruction: HloInstruction, attrs: TriangularSolveAttrs | None = None
) -> Kernel | None:
    """Return the kernel of a triangular-solve, or None if BLAS is missing or does not support the type.

    attrs: attributes to use instead of those of ``instruction``, which may be a custom call.
    """
    if trsm_function(instruction.operand(0).array_shape.element_type) is None:
        return None
    return TriangularSolveKernel(attrs or instruction.attrs_as(TriangularSolveAttrs))


def dense_triangles(_: HloInstruction, views: Views) -> dict[int, Order]:
    """Return the row-major order for operand 0 unless it is packed, since BLAS reads the triangles in place."""
    return {} if views[0].is_packed else {0: tuple(range(len(views[0].dims)))}


LOWERINGS.add(Opcode.CHOLESKY, Lowering(emit_with(cholesky_kernel), lambda _: ((0, 0),)))
LOWERINGS.add(
    Opcode.TRIANGULAR_SOLVE,
    Lowering(emit_with(triangular_solve_kernel), lambda _: ((0, 1),), layouts=dense_triangles),
)
