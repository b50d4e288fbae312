"""Elementwise operations that NumPy has not, or not without arrays of its own, as loops of one operation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.element_operations import ElementSignature
from runtime.cpu.kernels.loop.loop import Walk, bind_loop
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from runtime.program.scalar_program import ScalarOp, ScalarProgram
from spmd.literal import NDArray


@dataclass(frozen=True)
class NativeElementwiseKernel(Kernel):
    """results[0] = the operation's value on operands of the result's sizes, which may be its memory."""

    signature: ElementSignature


@CPU_KERNELS.binds(NativeElementwiseKernel)
def bind_native_elementwise(kernel: NativeElementwiseKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    every = (*arrays.operands, result)
    return bind_loop(one_operation(kernel.signature), result.shape, [*map(_walk, every)], every)


@cache
def one_operation(signature: ElementSignature) -> ScalarProgram:
    count = len(signature.operands)
    return ScalarProgram(signature.operands, (ScalarOp(signature, tuple(range(count))),), (count,))


def _walk(array: NDArray) -> Walk:
    return Walk(array.ctypes.data, array.strides, array.itemsize)
