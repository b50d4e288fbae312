"""Work of products of slices: the work of dense matrices, with the reuse distances of the sliced arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runtime.buffers.types import ArrayView
from runtime.cpu.prediction.products import product_work
from runtime.cpu.prediction.work import WORK, Access, Work
from runtime.program.records.dot import FactorOperands, SlicedProductKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.machine.description import MachineDescription
from spmd.shape import PrimitiveType


@WORK.register(SlicedProductKernel)
def sliced_work(
    kernel: SlicedProductKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    factors = kernel.factors
    matrices = (thunk.operands[factors.lhs], thunk.operands[factors.rhs])
    work = product_work(kernel.product, replace(thunk, operands=matrices), machine)
    return replace(work, accesses=where_slices_are(work.accesses, factors, matrices))


def where_slices_are(
    accesses: Iterable[Access], factors: FactorOperands, matrices: tuple[ArrayView, ArrayView]
) -> tuple[Access, ...]:
    """Replace the accesses to slices by accesses to their entire arrays, since the slices' starts are unknown."""
    moved = {
        matrix: _all_of(matrix)
        for matrix, shifts in zip(matrices, factors.shifts, strict=True)
        if shifts
    }
    return tuple(replace(one, array=moved.get(one.array, one.array)) for one in accesses)


def _all_of(part: ArrayView) -> ArrayView:
    size = part.slice.size
    return ArrayView(part.slice, StridedView(PrimitiveType.U8, (size,), (1,)))
