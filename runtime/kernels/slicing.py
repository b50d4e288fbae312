"""Dynamic slices, pad and concatenate: copies of blocks whose place may be known at run time alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from spmd.literal import NDArray


@dataclass(frozen=True)
class DynamicSliceKernel(Kernel):
    """results[0] = operands[0] from the start indices operands[1:]; starts are clamped so that the slice fits."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class DynamicUpdateSliceKernel(Kernel):
    """results[0] = operands[0] with operands[1] written at the start indices operands[2:], clamped to fit.

    results[0] may be the memory of operands[0].
    """


@dataclass(frozen=True)
class ConcatenateKernel(Kernel):
    """results[0] = operands one after the other along ``dimension``."""

    dimension: int


@dataclass(frozen=True)
class PadKernel(Kernel):
    """results[0] = operands[1] everywhere but where ``target`` says that operands[0][source] goes."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


def clamped_block(
    starts: tuple[NDArray, ...], sizes: tuple[int, ...], whole: tuple[int, ...]
) -> tuple[slice, ...]:
    block = []
    for start, size, limit in zip(starts, sizes, whole, strict=True):
        first = min(max(int(start), 0), limit - size)
        block.append(slice(first, first + size))
    return tuple(block)


@NUMPY_KERNELS.binds(DynamicSliceKernel)
def bind_dynamic_slice(kernel: DynamicSliceKernel, arrays: KernelArrays) -> Action:
    source, *starts = arrays.operands
    (out,) = arrays.results
    indices = tuple(starts)

    def run() -> None:
        np.copyto(out, source[clamped_block(indices, kernel.sizes, source.shape)])

    return run


@NUMPY_KERNELS.binds(DynamicUpdateSliceKernel)
def bind_dynamic_update_slice(_: DynamicUpdateSliceKernel, arrays: KernelArrays) -> Action:
    source, update, *starts = arrays.operands
    (out,) = arrays.results
    indices = tuple(starts)
    in_place = np.may_share_memory(source, out)

    def run() -> None:
        if not in_place:
            np.copyto(out, source)
        out[clamped_block(indices, update.shape, out.shape)] = update

    return run


@NUMPY_KERNELS.binds(ConcatenateKernel)
def bind_concatenate(kernel: ConcatenateKernel, arrays: KernelArrays) -> Action:
    (out,) = arrays.results
    targets = []
    start = 0
    for operand in arrays.operands:
        end = start + operand.shape[kernel.dimension]
        block = (slice(None),) * kernel.dimension + (slice(start, end),)
        targets.append((out[block], operand))
        start = end

    def run() -> None:
        for target, operand in targets:
            np.copyto(target, operand)

    return run


@NUMPY_KERNELS.binds(PadKernel)
def bind_pad(kernel: PadKernel, arrays: KernelArrays) -> Action:
    source, value = arrays.operands
    (out,) = arrays.results
    inner, target = source[kernel.source], out[kernel.target]

    def run() -> None:
        np.copyto(out, value)
        np.copyto(target, inner)

    return run
