"""Lowering of custom calls: by a kernel for some targets, by a Python callback, else by the reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from runtime.cpu.kernels.linalg.factorizations import scratch_shapes
from runtime.cpu.libraries.blas import LETTERS
from runtime.cpu.libraries.lapack import lapack_function
from runtime.emit.linear_algebra import dense_triangles, triangular_solve_kernel
from runtime.emit.reference import emit_kernel
from runtime.emit.sort import sort_scratch_of, top_kernel
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Order, Views
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel, UninitializedKernel
from runtime.program.records.linalg import (
    CholeskyKernel,
    FactorizationKernel,
    Routine,
    TriangularSolveKernel,
    TridiagonalSolveKernel,
)
from runtime.program.records.sort import SortKernel
from runtime.program.thunks import Thunk
from runtime.program.thunks.callback import CallbackThunk
from spmd.custom_call import custom_call
from spmd.evaluator.lapack import flags_of, triangular_solve_attrs
from spmd.hlo import HloInstruction, Opcode
from spmd.host_callback import callback_index, callback_signature
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import ALLOCATE_BUFFER
from spmd.shape import ArrayShape, PrimitiveType, as_array, as_tuple, leaves

#: Function that returns the kernel of a call, or None if there is none for its types.
KernelOf: TypeAlias = Callable[[HloInstruction], "Kernel | None"]


def _potrf(call: HloInstruction) -> Kernel | None:
    """Return the kernel of potrf, or None if LAPACK has none for the type.

    Its results are the factor, with the other triangle copied from the operand, and info.
    """
    if lapack_function("potrf", call.operand(0).array_shape.element_type) is None:
        return None
    return CholeskyKernel(flags_of(call)["uplo"] == "L", clears=False)


def _trsm(call: HloInstruction) -> Kernel | None:
    """Return the kernel of trsm, or None if BLAS is missing or does not support the type."""
    return triangular_solve_kernel(call, triangular_solve_attrs(flags_of(call)))


def _top_k(call: HloInstruction) -> Kernel | None:
    """Return the kernel of a TopK, or None if it has no native code."""
    count = as_array(as_tuple(call.shape).elements[0]).dims[-1]
    return top_kernel(call.operand(0).array_shape, count, largest=True)


def _uninitialized(_: HloInstruction) -> Kernel:
    """Return the kernel of a buffer that stays uninitialized."""
    return UninitializedKernel()


def _copied(call: HloInstruction) -> Kernel | None:
    """Return the kernel that copies an array to or from host memory, or None for a tuple."""
    return CopyKernel() if isinstance(call.shape, ArrayShape) else None


def _gtsv(call: HloInstruction) -> Kernel | None:
    """Return the kernel of gtsv, or None if an array is empty or LAPACK has none for the type."""
    shape = call.operand(3).array_shape
    if not shape.num_elements or lapack_function("gtsv", shape.element_type) is None:
        return None
    return TridiagonalSolveKernel()


_KERNELS: dict[str, KernelOf] = {"TopK": _top_k, ALLOCATE_BUFFER: _uninitialized}
_KERNELS |= {"MoveToHost": _copied, "MoveToDevice": _copied}
_KERNELS |= {f"lapack_{letter}potrf_ffi": _potrf for letter in LETTERS.values()}
_KERNELS |= {f"lapack_{letter}trsm_ffi": _trsm for letter in LETTERS.values()}
_KERNELS |= {f"lapack_{letter}gtsv_ffi": _gtsv for letter in LETTERS.values()}


def _factorization(routine: Routine, flag: str = "") -> KernelOf:
    """Return a function that returns the kernel of a call of ``routine``.

    flag: name of the attribute of the call that is the flag of the routine; empty if it has none.
    """

    def kernel(call: HloInstruction) -> Kernel | None:
        shape = call.operand(0).array_shape
        kind = shape.element_type
        if not shape.num_elements or lapack_function(routine.name_for(kind), kind) is None:
            return None
        wanted = flags_of(call).get(flag, "S") if flag else ""
        if routine is Routine.GESDD and wanted not in ("A", "S", "N"):
            return None
        return FactorizationKernel(routine, wanted)

    return kernel


for _letter in LETTERS.values():
    _name = f"lapack_{_letter}{{}}_ffi"
    _orgqr, _syevd = ("orgqr", "syevd") if _letter in "sd" else ("ungqr", "heevd")
    _KERNELS |= {
        _name.format("getrf"): _factorization(Routine.GETRF),
        _name.format("geqrf"): _factorization(Routine.GEQRF),
        _name.format(_orgqr): _factorization(Routine.ORGQR),
        _name.format(_syevd): _factorization(Routine.SYEVD, "uplo"),
        _name.format("gesdd"): _factorization(Routine.GESDD, "mode"),
    }


def custom_call_kernel(call: HloInstruction) -> Kernel | None:
    """Return the kernel that computes ``call``, or None if there is none for its target and types."""
    found = _KERNELS.get(call.attrs_as(CustomCallAttrs).target)
    return None if found is None else found(call)


def layouts(call: HloInstruction, views: Views) -> dict[int, Order]:
    """Return the operands that must be copied to row-major order because BLAS or LAPACK reads them in place."""
    kernel = custom_call_kernel(call)
    if isinstance(kernel, TriangularSolveKernel):
        return dense_triangles(call, views)
    if isinstance(kernel, FactorizationKernel) and len(views) > 1 and not views[1].is_packed:
        return {1: tuple(range(len(views[1].dims)))}  # tau, which LAPACK reads in place
    return {}


def scratch(call: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays of the kernel of ``call``."""
    kernel = custom_call_kernel(call)
    if isinstance(kernel, FactorizationKernel):
        operands = tuple(operand.array_shape for operand in call.operands)
        results = tuple(as_array(leaf) for _, leaf in leaves(call.shape))
        return scratch_shapes(kernel, operands, results)
    if isinstance(kernel, TridiagonalSolveKernel):
        return _tridiagonal_scratch(call.operand(3).array_shape)
    return sort_scratch_of(kernel) if isinstance(kernel, SortKernel) else ()


def _tridiagonal_scratch(sides: ArrayShape) -> tuple[ArrayShape, ArrayShape]:
    """Return the shapes of a column-major copy of the right-hand sides, and of infos in LAPACK's integer type."""
    function = lapack_function("gtsv", sides.element_type)
    assert function is not None, "it was asked for before"
    index = PrimitiveType.S64 if function.index_bits == 64 else PrimitiveType.S32
    *batch, n, count = sides.dims
    columns = ArrayShape(sides.element_type, (*batch, count, n))
    return columns, ArrayShape(index, (math.prod(batch),))


def emit_custom_call(call: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a custom call: a callback, a kernel, or a call of the reference evaluator."""
    number, target = callback_index(call), call.attrs_as(CustomCallAttrs).target
    if number is not None and custom_call(target).evaluate is None:
        signature = callback_signature(call)
        return CallbackThunk(call.name, target, number, arrays.operands, arrays.results, signature)
    return emit_kernel(custom_call_kernel(call), call, arrays, device)


LOWERINGS.add(Opcode.CUSTOM_CALL, Lowering(emit_custom_call, layouts=layouts, scratch=scratch))
