"""Elementwise operations that NumPy has not, or not without arrays of its own, as loops of one operation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.complex_programs import complex_program
from runtime.codegen.element_operations import ElementSignature, has_operation
from runtime.codegen.scalar_program import ScalarOp, ScalarProgram
from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.loop import Walk, bind_loop
from spmd.literal import NDArray


@dataclass(frozen=True)
class NativeElementwiseKernel(Kernel):
    """results[0] = the operation's value on operands of the result's sizes, which may be its memory."""

    signature: ElementSignature


@NUMPY_KERNELS.binds(NativeElementwiseKernel)
def bind_native_elementwise(kernel: NativeElementwiseKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    every = (*arrays.operands, result)
    program = complex_program(kernel.signature) or one_operation(kernel.signature)
    walks = [_walk(part) for array in every for part in _parts(array)]
    return bind_loop(program, result.shape, walks, every)


def has_native(signature: ElementSignature) -> bool:
    """Whether there is native code: of the operation on real numbers, or on the parts of complex ones."""
    return has_operation(signature) or complex_program(signature) is not None


def _parts(array: NDArray) -> tuple[NDArray, ...]:
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


@cache
def one_operation(signature: ElementSignature) -> ScalarProgram:
    count = len(signature.operands)
    return ScalarProgram(signature.operands, (ScalarOp(signature, tuple(range(count))),), (count,))


def _walk(array: NDArray) -> Walk:
    return Walk(array.ctypes.data, array.strides, array.itemsize)
