"""Reductions by a scalar program, of several arrays together (argmax) or of one by an odd reducer, in native code."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.kernels.native_call import NOTHING, native_call
from runtime.cpu.kernels.reduce.reduce_ir import (
    FUNCTION,
    TILE,
    WORD_BYTES,
    ReducedArray,
    ReduceForm,
    ReduceRecord,
    TotalsArray,
    reduce_code,
)
from runtime.program.index_order import merged_dims
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.reduce import ProgramReduceKernel

#: Rows at once that are neighbours in memory: long pieces are read, and their totals stay in the nearest cache.
NEIGHBOURS = 1024
#: Others: as many as a vector of any processor holds.
APART = 16
#: Of those, rows whose elements are turned: two vectors of totals at least, of which one waits while the other goes on.
TURNED = 32


@CPU_KERNELS.binds(ProgramReduceKernel)
def bind_program_reduce(kernel: ProgramReduceKernel, arrays: KernelArrays) -> Action:
    count = len(arrays.results)
    operands, inits = arrays.operands[:count], arrays.operands[count:]
    dims, every = operands[0].shape, (*operands, *arrays.results)
    if arrays.results[0].size == 0:
        return NOTHING
    kept = [d for d in range(len(dims)) if d not in kernel.axes]
    strides = [[x.strides[d] for d in kept] for x in operands]
    strides += [list(result.strides) for result in arrays.results]
    sizes, kept_strides = merged_dims([dims[d] for d in kept], strides)
    if not sizes:
        sizes, kept_strides = [1], [[0] for _ in every]
    # Any of them may be the last, since totals do not depend on each other: best the one with most neighbours.
    items = [x.itemsize for x in every]
    neighbours = [
        sum(own[d] == item for own, item in zip(kept_strides, items, strict=True))
        for d in range(len(sizes))
    ]
    last = max(range(len(sizes)), key=lambda d: (neighbours[d], sizes[d]))
    order = [*(d for d in range(len(sizes)) if d != last), last]
    sizes, kept_strides = (
        [sizes[d] for d in order],
        [[own[d] for d in order] for own in kept_strides],
    )
    reduced, reduced_strides = merged_dims(
        [dims[d] for d in kernel.axes], [[x.strides[d] for d in kernel.axes] for x in operands]
    )
    packed = tuple(own[-1] == item for own, item in zip(kept_strides, items, strict=True))
    rows = 1 if sizes[-1] == 1 else NEIGHBOURS if any(packed[:count]) else APART
    turned: tuple[bool, ...] = ()
    if sizes[-1] >= TURNED and reduced and reduced[-1] >= TILE:
        along = [own[-1] for own in kept_strides[:count]]
        turned = _turned(items[:count], along, [own[-1] for own in reduced_strides])
        rows = TURNED if turned else rows
    form = ReduceForm(kernel.program, len(sizes), len(reduced), rows, packed, turned)
    record = ReduceRecord(
        sizes,
        reduced,
        [
            ReducedArray(x.ctypes.data, along, across)
            for x, along, across in zip(operands, kept_strides, reduced_strides, strict=False)
        ],
        [init.ctypes.data for init in inits],
        [
            TotalsArray(x.ctypes.data, along)
            for x, along in zip(arrays.results, kept_strides[count:], strict=True)
        ],
    )
    alive = (*arrays.operands, *arrays.results)
    return native_call(reduce_code(form), FUNCTION, record.to_array(), alive)


def _turned(items: Sequence[int], along: Sequence[int], across: Sequence[int]) -> tuple[bool, ...]:
    """Return which operands are transposed so that rows are neighbours; none if one would have to be and cannot.

    items: bytes of an element. along: strides from row to row, across: within a row.
    """
    repeated = [stride == 0 for stride in along]
    fits = [
        same or item == step == WORD_BYTES
        for same, item, step in zip(repeated, items, across, strict=True)
    ]
    if not all(fits) or all(repeated):
        return ()
    return tuple(not same for same in repeated)
