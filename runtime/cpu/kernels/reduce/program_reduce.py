"""Reductions by a scalar program in native code: of several arrays (argmax), or of one by an unusual reducer."""

from __future__ import annotations

from runtime.cpu.kernels.native_call import NOTHING, native_call
from runtime.cpu.kernels.reduce.reduce_ir import (
    FUNCTION,
    ReducedArray,
    ReduceRecord,
    ReduceVariant,
    TotalsArray,
    reduce_code,
)
from runtime.cpu.kernels.reduce.tuning import APART, NEIGHBOURS
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.strides import merged_dims


@CPU_KERNELS.binds(ProgramReduceKernel)
def bind_program_reduce(kernel: ProgramReduceKernel, arrays: KernelArrays) -> Action:
    """Bind the reduction as one native call.

    Retained and reduced dimensions are merged as far as strides allow. Blocks of totals are vectorized along the
    retained dimension in which most arrays are contiguous.
    """
    count = len(arrays.results)
    operands, inits = arrays.operands[:count], arrays.operands[count:]
    dims, every = operands[0].shape, (*operands, *arrays.results)
    if arrays.results[0].size == 0:
        return NOTHING
    retained = [d for d in range(len(dims)) if d not in kernel.axes]
    strides = [[x.strides[d] for d in retained] for x in operands]
    strides += [list(result.strides) for result in arrays.results]
    sizes, retained_strides = merged_dims([dims[d] for d in retained], strides)
    if not sizes:
        sizes, retained_strides = [1], [[0] for _ in every]
    # Totals are independent, so any retained dimension may be the last: the best one is contiguous in most arrays.
    items = [x.itemsize for x in every]
    neighbours = [
        sum(own[d] == item for own, item in zip(retained_strides, items, strict=True))
        for d in range(len(sizes))
    ]
    last = max(range(len(sizes)), key=lambda d: (neighbours[d], sizes[d]))
    order = [*(d for d in range(len(sizes)) if d != last), last]
    sizes, retained_strides = (
        [sizes[d] for d in order],
        [[own[d] for d in order] for own in retained_strides],
    )
    reduced, reduced_strides = merged_dims(
        [dims[d] for d in kernel.axes], [[x.strides[d] for d in kernel.axes] for x in operands]
    )
    packed = tuple(own[-1] == item for own, item in zip(retained_strides, items, strict=True))
    rows = 1 if sizes[-1] == 1 else NEIGHBOURS if any(packed[:count]) else APART
    variant = ReduceVariant(kernel.program, len(sizes), len(reduced), rows, packed)
    record = ReduceRecord(
        sizes,
        reduced,
        [
            ReducedArray(x.ctypes.data, along, across)
            for x, along, across in zip(operands, retained_strides, reduced_strides, strict=False)
        ],
        [init.ctypes.data for init in inits],
        [
            TotalsArray(x.ctypes.data, along)
            for x, along in zip(arrays.results, retained_strides[count:], strict=True)
        ],
    )
    alive = (*arrays.operands, *arrays.results)
    return native_call(reduce_code(variant), FUNCTION, record.to_array(), alive)
