"""Dynamic slices, pads and concatenations, which copy blocks whose offset may be known at run time only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.cpu.kernels.copy.copy import SOURCE_WORD, TARGET_WORD, copying, native_copy
from runtime.cpu.kernels.copy.slice_offset import storing_addresses
from runtime.cpu.kernels.loop.loop import ArrayAccess
from runtime.cpu.kernels.native_call import NativeAction, in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.program_builder import index_stage
from runtime.program.records.copy import (
    ConcatenateKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)
from runtime.program.strides import Shift
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def part(array: NDArray, block: tuple[slice, ...]) -> NDArray:
    """Return the block of ``array`` as an array, even if it is a single element."""
    view: NDArray = array[(*block, ...)]  # type: ignore[arg-type]
    return view


@CPU_KERNELS.binds(DynamicSliceKernel)
def bind_dynamic_slice(kernel: DynamicSliceKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of the slice, after a call that writes the slice's address to the record of the copy.

    NumPy copies slices for which ``native_copy`` returns None.
    """
    source, *starts = arrays.operands
    (out,) = arrays.results
    first = part(source, tuple(map(slice, kernel.sizes)))
    copy = native_copy(first, out)
    if copy is not None:
        return placed(copy, SOURCE_WORD, source, kernel.sizes, starts)

    def run() -> None:
        np.copyto(out, source[clamped_block(starts, kernel.sizes, source.shape)])

    return run


@CPU_KERNELS.binds(DynamicUpdateSliceKernel)
def bind_dynamic_update_slice(_: DynamicUpdateSliceKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of the operand, unless the result has its memory, and then one of the update."""
    source, update, *starts = arrays.operands
    (out,) = arrays.results
    writing = _updating(update, out, starts)
    if np.may_share_memory(source, out):
        return writing
    return in_order(copying(source, out), writing)


def _updating(update: NDArray, out: NDArray, starts: Sequence[NDArray]) -> Action:
    """Bind a copy of ``update`` to the block of ``out`` that begins at ``starts``."""
    copy = native_copy(update, part(out, tuple(map(slice, update.shape))))
    if copy is not None:
        return placed(copy, TARGET_WORD, out, update.shape, starts)

    def run() -> None:
        out[clamped_block(starts, update.shape, out.shape)] = update

    return run


def placed(
    copy: NativeAction,
    word: int,
    array: NDArray,
    sizes: Sequence[int],
    starts: Sequence[NDArray],
) -> NativeAction:
    """Return ``copy`` after a native call that writes the address of a block to word number ``word`` of its record.

    The block of ``array`` has ``sizes`` and begins at the scalar indices ``starts``, which are clamped so that it is in
    bounds. Dimensions in which the block is as large as the array need no start.
    """
    moving = [d for d, size in enumerate(sizes) if size != array.shape[d]]
    if not moving or not copy.calls:
        return copy
    (call,) = copy.calls
    shifts = [Shift(n, array.shape[d] - sizes[d], array.strides[d]) for n, d in enumerate(moving)]
    block = ArrayAccess(array.ctypes.data, (), 1, shifts=tuple(shifts))
    stage = index_stage((PrimitiveType.from_numpy(starts[0].dtype),) * len(moving), 1)
    operands = (array, *(starts[d] for d in moving))
    storing = storing_addresses({call.record + 8 * word: block}, (stage,), operands)
    return NativeAction((*storing.calls, call))


def clamped_block(
    starts: Sequence[NDArray], sizes: Sequence[int], dims: Sequence[int]
) -> tuple[slice, ...]:
    """Return the block of ``sizes`` at ``starts``, clamped so that it is inside an array of sizes ``dims``."""
    block = []
    for start, size, limit in zip(starts, sizes, dims, strict=True):
        first = min(max(int(start), 0), limit - size)
        block.append(slice(first, first + size))
    return tuple(block)


@CPU_KERNELS.binds(ConcatenateKernel)
def bind_concatenate(kernel: ConcatenateKernel, arrays: KernelArrays) -> Action:
    """Bind a copy of each operand to its part of the result."""
    (out,) = arrays.results
    copies = []
    start = 0
    for operand in arrays.operands:
        end = start + operand.shape[kernel.dimension]
        block = (slice(None),) * kernel.dimension + (slice(start, end),)
        copies.append(copying(operand, part(out, block)))
        start = end
    return in_order(*copies)


@CPU_KERNELS.binds(PadKernel)
def bind_pad(kernel: PadKernel, arrays: KernelArrays) -> Action:
    """Bind copies of the padding value and the operand. With interior padding the value is first copied everywhere."""
    source, value = arrays.operands
    (out,) = arrays.results
    inner = copying(part(source, kernel.source), part(out, kernel.target))
    if any(target.step != 1 for target in kernel.target):
        return in_order(copying(value, out), inner)
    around = [copying(value, part) for part in _around(out, kernel.target)]
    return in_order(*around, inner)


def _around(out: NDArray, inner: tuple[slice, ...]) -> list[NDArray]:
    """Return the disjoint parts of ``out`` outside its block ``inner``: below and above it in each dimension."""
    return [
        part(out, (*inner[:dimension], outside))
        for dimension, block in enumerate(inner)
        for outside in (slice(block.start), slice(block.stop, None))
    ]
