"""Reductions of several arrays together by a scalar program (argmax), in native code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.codegen.llvm_reduce import FUNCTION, ReduceWords, reduce_code
from runtime.codegen.llvm_words import RANK
from runtime.codegen.native_call import native_call
from runtime.codegen.scalar_program import ScalarProgram
from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays


@dataclass(frozen=True)
class ProgramReduceKernel(Kernel):
    """results = the program's totals of operands along ``axes``, which start from the scalar inits behind the operands.

    The program takes n totals, then n elements, and gives n totals.
    """

    program: ScalarProgram
    axes: tuple[int, ...]
    rank: int

    @property
    def is_countable(self) -> bool:
        """Whether native code has enough counters for it."""
        return len(self.axes) <= RANK and self.rank - len(self.axes) <= RANK


@NUMPY_KERNELS.binds(ProgramReduceKernel)
def bind_program_reduce(kernel: ProgramReduceKernel, arrays: KernelArrays) -> Action:
    count = len(arrays.results)
    operands, inits = arrays.operands[:count], arrays.operands[count:]
    kept = [d for d in range(kernel.rank) if d not in kernel.axes]
    dims = operands[0].shape
    words = ReduceWords(
        [dims[d] for d in kept],
        [dims[d] for d in kernel.axes],
        [
            (x.ctypes.data, [x.strides[d] for d in kept], [x.strides[d] for d in kernel.axes])
            for x in operands
        ],
        [init.ctypes.data for init in inits],
        [(result.ctypes.data, result.strides) for result in arrays.results],
    )
    record = np.array(words.packed(), np.int64)
    code = reduce_code(kernel.program)
    return native_call(code, FUNCTION, record, (*arrays.operands, *arrays.results))
