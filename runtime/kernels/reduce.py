"""Reductions by a recognised reducer, of an array or of an elementwise program's value, block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.blocks import Block, blocks_of, part
from runtime.kernels.element_ops import ElementOp
from runtime.kernels.elementwise import BoundProgram, Registers, bind_program, shape_of
from spmd.device import ReductionKind
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

UFUNCS: dict[ReductionKind, np.ufunc] = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}


@dataclass(frozen=True)
class ReduceKernel(Kernel):
    """results[0] = init op (elements along ``axes``), of the program's last value over indices ``dims``.

    operands: the program's inputs (sizes ``dims``), then the scalar init. No ops: the one input itself is reduced.
    scratch: registers (where there are ops), one partial result (where blocks cut an axis), the sums in ``accumulate``
    (where it is not the result's type).
    """

    dims: tuple[int, ...]
    axes: tuple[int, ...]
    reduction: ReductionKind
    num_inputs: int
    ops: tuple[ElementOp, ...]
    block: tuple[int, ...]
    registers: Registers
    element_type: PrimitiveType
    accumulate: PrimitiveType

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(d for d in range(len(self.dims)) if d not in self.axes)

    @property
    def cuts_axes(self) -> bool:
        """Blocks are smaller than the array along reduced dimensions: partial results have to be combined."""
        return any(self.block[a] < self.dims[a] for a in self.axes)

    @property
    def block_elements(self) -> int:
        return math.prod(self.block)

    @property
    def partial_elements(self) -> int:
        return math.prod(self.block[d] for d in self.kept)


@dataclass(frozen=True)
class _Reduction:
    kernel: ReduceKernel
    program: BoundProgram
    inputs: tuple[NDArray, ...]
    init: NDArray
    #: Where sums are kept: the result, or scratch in a wider type.
    sums: NDArray
    partial: NDArray | None

    def run(self, blocks: list[Block]) -> None:
        ufunc = UFUNCS[self.kernel.reduction]
        if self.partial is not None:
            np.copyto(self.sums, self.init, casting="unsafe")
        for block in blocks:
            inputs = [part(operand, block) for operand in self.inputs]
            value = self.program.run(inputs, None, shape_of(block))
            target = part(self.sums, tuple(block[d] for d in self.kernel.kept))
            if self.partial is None:
                self._reduce(ufunc, value, target, self.init[()])
                continue
            partial = self.partial[: target.size].reshape(target.shape)
            self._reduce(ufunc, value, partial, None)
            ufunc(target, partial, out=target)

    def _reduce(self, ufunc: np.ufunc, value: NDArray, out: NDArray, init: object) -> None:
        kind = self.kernel.accumulate.numpy
        if init is None:
            ufunc.reduce(value, axis=self.kernel.axes, dtype=kind, out=out)
        else:
            ufunc.reduce(value, axis=self.kernel.axes, dtype=kind, out=out, initial=kind.type(init))


@NUMPY_KERNELS.binds(ReduceKernel)
def bind_reduce(kernel: ReduceKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    *inputs, init = arrays.operands
    spare = list(arrays.scratch)
    registers = spare.pop(0) if kernel.registers.count else None
    partial = spare.pop(0) if kernel.cuts_axes else None
    sums = spare.pop(0) if kernel.accumulate is not kernel.element_type else result
    program = bind_program(kernel.num_inputs, kernel.ops, kernel.registers, registers)
    reduction = _Reduction(kernel, program, tuple(inputs), init, sums, partial)
    blocks = blocks_of(kernel.dims, kernel.block)
    if not blocks:
        return lambda: np.copyto(result, init)

    def run() -> None:
        reduction.run(blocks)
        if sums is not result:
            np.copyto(result, sums, casting="unsafe")

    return run
