"""Work of kernels that move, gather, scatter, reduce or sort elements, from the bytes that they must touch."""

from __future__ import annotations

import math

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.loop.loop import track
from runtime.cpu.prediction.loops import loop_access, nest_of, program_busy
from runtime.cpu.prediction.work import (
    WORK,
    Access,
    Work,
    all_touched,
    stored_bytes,
    touched,
)
from runtime.program.records.copy import (
    CopyKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
    UninitializedKernel,
)
from runtime.program.records.gather_scatter import (
    GatherKernel,
    IndexedWindows,
    ScatterKernel,
)
from runtime.program.records.reduce import ProgramReduceKernel, ReduceWindowKernel
from runtime.program.records.sort import SortKernel
from runtime.program.thunks import KernelThunk
from spmd.cost.elements import SINGLE_INTEGER, element_seconds
from spmd.hlo import Opcode
from spmd.machine.description import MachineDescription

#: Time of an operation on a single element as a multiple of the time per element in a vector.
_SCALAR = 16.0


def copy_work(source: ArrayView, target: ArrayView) -> Work:
    """Return the work of a copy, which runs in the order of the target or in blocks that are transposed."""
    tracks = [track(x.view) for x in (source, target)]
    nest = nest_of(target.view.dims, tracks, 1)
    accesses = tuple(
        Access(array, stored_bytes(array), nest.slowdown(n, tracks[n].item))
        for n, array in enumerate((source, target))
    )
    return Work(accesses, rows=nest.rows)


@WORK.register(UninitializedKernel)
def uninitialized_work(_: UninitializedKernel, __: KernelThunk, ___: MachineDescription) -> Work:
    return Work((), loops=0.0)


@WORK.register(CopyKernel)
def copy_kernel_work(_: CopyKernel, thunk: KernelThunk, __: MachineDescription) -> Work:
    return copy_work(thunk.operands[0], thunk.results[0])


@WORK.register(DynamicSliceKernel)
def slice_work(_: DynamicSliceKernel, thunk: KernelThunk, __: MachineDescription) -> Work:
    (result,) = thunk.results
    size = stored_bytes(result)
    return Work((Access(thunk.operands[0], size), Access(result, size)))


@WORK.register(DynamicUpdateSliceKernel)
def update_work(_: DynamicUpdateSliceKernel, thunk: KernelThunk, __: MachineDescription) -> Work:
    """Return the work of the update alone if it is in place; otherwise the operand is copied first."""
    source, update = thunk.operands[:2]
    (result,) = thunk.results
    size = stored_bytes(update)
    if source.slice == result.slice:
        return Work((Access(update, size), Access(result, size)))
    return Work((*touched((source, update, result)), Access(result, 0.0, again=size)))


@WORK.register(PadKernel)
def pad_work(_: PadKernel, thunk: KernelThunk, __: MachineDescription) -> Work:
    return Work(tuple(touched((thunk.operands[0], thunk.results[0]))))


@WORK.register(GatherKernel)
def gather_work(kernel: GatherKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of a gather, which reads as many bytes of the indexed array as its windows have."""
    source = thunk.operands[kernel.windows.array]
    (result,) = thunk.results
    size = stored_bytes(result)
    indexed = Access(
        source, min(size, stored_bytes(source)), again=max(size - stored_bytes(source), 0)
    )
    windows, seconds = _index_vectors(kernel.windows, result, machine)
    accesses = (indexed, *_leaf_accesses(kernel.windows, thunk), *touched((result,)))
    return Work(accesses, seconds, rows=windows)


@WORK.register(ScatterKernel)
def scatter_work(kernel: ScatterKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of a scatter, which reads and writes windows of the result.

    If the result is not the operand's memory, the operand is copied first.
    """
    source, updates = (thunk.operands[n] for n in (kernel.windows.array, kernel.updates))
    (result,) = thunk.results
    size = stored_bytes(updates)
    indexed: tuple[Access, ...] = (Access(result, min(size, stored_bytes(result)), again=size),)
    if source.slice != result.slice:
        indexed = (*touched((source,)), Access(result, stored_bytes(result), again=2 * size))
    windows, seconds = _index_vectors(kernel.windows, updates, machine)
    accesses = (*indexed, *_leaf_accesses(kernel.windows, thunk), *touched((updates,)))
    return Work(accesses, seconds, rows=windows)


def _leaf_accesses(windows: IndexedWindows, thunk: KernelThunk) -> list[Access]:
    """Return the accesses to the elements from which index vectors are computed."""
    leaves = windows.leaves
    return [loop_access(thunk.operands[leaf.operand], leaf.view, 1.0) for leaf in leaves]


def _index_vectors(
    windows: IndexedWindows, slices: ArrayView, machine: MachineDescription
) -> tuple[float, float]:
    """Return the number of index vectors, and the seconds of their computation. slices: array of windows."""
    count = float(math.prod(slices.view.dims[n] for n, _ in windows.batch))
    each, _ = program_busy(windows.indices, [True] * len(windows.indices.parameters), machine)
    return count, count * SINGLE_INTEGER * each.arithmetic


@WORK.register(ProgramReduceKernel)
def program_reduce_work(
    kernel: ProgramReduceKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    varies = [True] * len(kernel.program.parameters)
    each, _ = program_busy(kernel.program, varies, machine)
    busy = each.times(thunk.operands[0].view.num_elements)
    return Work(all_touched(thunk), busy.arithmetic, divider=busy.divider)


@WORK.register(ReduceWindowKernel)
def window_work(
    kernel: ReduceWindowKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    """Return the work of windows. Windows as long as the dimension are running totals that read each element once."""
    kind = thunk.results[0].view.element_type
    pairs = zip(kernel.window.dims, thunk.operands[0].view.dims, strict=True)
    size = math.prod(1 if dim.size >= extent else dim.size for dim, extent in pairs)
    each = element_seconds(Opcode.ADD, kind, kind, machine)
    return Work(all_touched(thunk), thunk.results[0].view.num_elements * size * each)


@WORK.register(SortKernel)
def sort_work(kernel: SortKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of a sort, which runs the comparator on single elements, log2(size) times for each."""
    varies = [True] * len(kernel.comparator.parameters)
    each, _ = program_busy(kernel.comparator, varies, machine)
    elements = float(thunk.operands[0].view.num_elements)
    halvings = math.log2(max(kernel.size, 2))
    return Work(all_touched(thunk), elements * halvings * _SCALAR * each.arithmetic)
