"""Unrolling of loops whose innermost dimension has few elements, into the loop over the dimension before it.

The innermost loop over [16,2] would begin sixteen times, each time for a vector that is mostly empty. Values that are
equal for all of the few elements, such as those that are broadcast along the innermost dimension, are read and computed
once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from runtime.cpu.kernels.loop.loop import MOST_SIDE_BY_SIDE, track, track_of
from runtime.program.records.loop import LoopKernel, LoopLeaf
from runtime.program.scalar_program import ScalarOp, ScalarProgram, ScalarStep
from runtime.program.strides import StridedView, in_streaming_order, merged_dims
from spmd.shape import PrimitiveType

#: Largest number of elements that an iteration of an unrolled loop reads, and of steps of its program.
_MOST_LEAVES, _MOST_STEPS = 48, 256
#: Largest number of cached kernels. A program has a few hundred.
_MOST_KERNELS = 4096


@lru_cache(_MOST_KERNELS)
def unrolled(kernel: LoopKernel) -> LoopKernel:
    """Return the loop with its short last dimensions unrolled as far as the limits of leaves and steps allow."""
    while last := _short_last(kernel):
        smaller = kernel
        for d in last:
            smaller = _without(smaller, d)
        if len(smaller.leaves) > _MOST_LEAVES or len(smaller.program.steps) > _MOST_STEPS:
            break
        kernel = smaller
    return kernel


def _short_last(kernel: LoopKernel) -> list[int]:
    """Return the dimensions that make up the innermost loop if it should be unrolled, else an empty list."""
    if kernel.ranges or 0 in kernel.dims:
        return []
    tracks = [*map(track_of, kernel.leaves), *map(track, kernel.results)]
    order = in_streaming_order(kernel.dims, tracks, len(kernel.leaves))
    strides = [[each.strides[d] for d in order] for each in tracks]
    sizes, _ = merged_dims([kernel.dims[d] for d in order], strides)
    if len(sizes) < 2 or sizes[-1] > MOST_SIDE_BY_SIDE:
        return []
    last: list[int] = []
    while math.prod(kernel.dims[d] for d in last) < sizes[-1]:
        last.append(order.pop())
    return last


def _without(kernel: LoopKernel, d: int) -> LoopKernel:
    """Return the loop that computes all elements along dimension ``d`` in one iteration, so that ``d`` has size 1."""
    program = kernel.program
    leaves: dict[tuple[LoopLeaf, PrimitiveType], int] = {}
    registers = []
    for k in range(kernel.dims[d]):
        here = [replace(leaf, view=_at(leaf.view, d, k)) for leaf in kernel.leaves]
        read = zip(here, program.parameters, strict=True)
        registers.append([leaves.setdefault(each, len(leaves)) for each in read])
    steps: dict[ScalarStep, int] = {}
    for own in registers:
        for step in program.steps:
            if isinstance(step, ScalarOp):
                step = replace(step, operands=tuple([own[r] for r in step.operands]))
            own.append(steps.setdefault(step, len(leaves) + len(steps)))
    return replace(
        kernel,
        dims=(*kernel.dims[:d], 1, *kernel.dims[d + 1 :]),
        program=ScalarProgram(
            tuple(kind for _, kind in leaves),
            tuple(steps),
            tuple([own[r] for own in registers for r in program.results]),
        ),
        leaves=tuple(leaf for leaf, _ in leaves),
        results=tuple(_at(view, d, k) for k in range(kernel.dims[d]) for view in kernel.results),
        result_shifts=kernel.result_shifts * kernel.dims[d],
        targets=kernel.written * kernel.dims[d],
    )


def _at(view: StridedView, d: int, k: int) -> StridedView:
    """Return the view of the elements at index ``k`` of dimension ``d``, which keeps size 1.

    Strides along dimensions of size 1 become 0, so that equal elements have equal views and are read once.
    """
    return StridedView(
        view.element_type,
        (*view.dims[:d], 1, *view.dims[d + 1 :]),
        tuple(
            0 if i == d or n == 1 else s
            for i, (n, s) in enumerate(zip(view.dims, view.strides, strict=True))
        ),
        view.offset + k * view.strides[d],
    )
