"""Reductions by a scalar program, of several arrays together (argmax) or of one by an odd reducer, in native code."""

from __future__ import annotations

from runtime.cpu.kernels.native_call import NOTHING, native_call
from runtime.cpu.kernels.reduce.reduce_ir import (
    FUNCTION,
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
    form = ReduceForm(kernel.program, len(sizes), len(reduced), rows, packed)
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
