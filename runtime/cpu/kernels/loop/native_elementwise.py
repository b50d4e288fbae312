"""Elementwise operations that NumPy lacks or computes with temporaries, as loops of one operation."""

from __future__ import annotations

from runtime.cpu.kernels.loop.loop import ArrayAccess, bind_loop
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.native_elementwise import NativeElementwiseKernel, one_operation
from spmd.literal import NDArray


@CPU_KERNELS.binds(NativeElementwiseKernel)
def bind_native_elementwise(kernel: NativeElementwiseKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    every = (*arrays.operands, result)
    return bind_loop(one_operation(kernel.signature), result.shape, [*map(_access, every)], every)


def _access(array: NDArray) -> ArrayAccess:
    return ArrayAccess(array.ctypes.data, array.strides, array.itemsize)
