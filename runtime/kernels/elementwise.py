"""Elementwise programs: several operations on one index space, block by block, through small scratch registers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.blocks import Block, blocks_of, part
from runtime.kernels.element_ops import ElementFunction, ElementOp, element_function, may_overwrite
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Registers:
    """Where each operation of a program leaves its value: scratch register number, or None for the result.

    ``count`` scratch registers of ``item_bytes`` per element are enough: values that are dead give theirs up.
    """

    places: tuple[int | None, ...]
    count: int
    item_bytes: int


@dataclass(frozen=True)
class ElementwiseKernel(Kernel):
    """results[0] = the last operation's value, for all indices of ``dims``.

    Register i < num_inputs is operand i (sizes ``dims``, any strides); register num_inputs + k is the value of ops[k].
    scratch[0] holds ``registers.count`` registers of one block each.
    """

    dims: tuple[int, ...]
    num_inputs: int
    ops: tuple[ElementOp, ...]
    block: tuple[int, ...]
    registers: Registers


def allocate_registers(
    num_inputs: int, ops: tuple[ElementOp, ...], *, keep_last: bool
) -> Registers:
    """Give every value but the last a scratch register, reusing those of dead values.

    ``keep_last``: the last value needs a register as well (it is not the kernel's result).
    """
    last_use = {operand: k for k, op in enumerate(ops) for operand in op.operands}
    places: list[int | None] = []
    free: list[int] = []
    count = 0
    holder: dict[int, int] = {}
    for k, op in enumerate(ops):
        dying = [r for r in dict.fromkeys(op.operands) if last_use[r] == k and r in holder]
        over = {op.operands[i] for i in may_overwrite(op) if op.operands.count(op.operands[i]) == 1}
        early = [r for r in dying if r in over]
        free.extend(holder.pop(r) for r in early)
        if k == len(ops) - 1 and not keep_last:
            places.append(None)
        else:
            if not free:
                free.append(count)
                count += 1
            holder[num_inputs + k] = free.pop()
            places.append(holder[num_inputs + k])
        free.extend(holder.pop(r) for r in dying if r in holder)
    item = max((op.element_type.byte_size for op in ops), default=1)
    return Registers(tuple(places), count, item)


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """Operations with their functions; ``run`` computes one block."""

    num_inputs: int
    functions: tuple[ElementFunction, ...]
    ops: tuple[ElementOp, ...]
    registers: Registers
    scratch: NDArray | None

    def run(self, inputs: list[NDArray], result: NDArray | None, shape: tuple[int, ...]) -> NDArray:
        """The last value (``result`` itself where that is given)."""
        values = list(inputs)
        out = result
        for op, function, place in zip(
            self.ops, self.functions, self.registers.places, strict=True
        ):
            if place is None:
                assert result is not None
                out = result
            else:
                out = self.register(place, op.element_type, shape)
            function(out, *[values[r] for r in op.operands])
            values.append(out)
        return values[-1]

    def register(self, place: int, kind: PrimitiveType, shape: tuple[int, ...]) -> NDArray:
        assert self.scratch is not None
        size = len(self.scratch) // self.registers.count
        return np.ndarray(shape, kind.numpy, self.scratch, place * size)


def bind_program(
    num_inputs: int, ops: tuple[ElementOp, ...], registers: Registers, scratch: NDArray | None
) -> BoundProgram:
    return BoundProgram(
        num_inputs, tuple(element_function(op) for op in ops), ops, registers, scratch
    )


def shape_of(block: Block) -> tuple[int, ...]:
    return tuple(cut.stop - cut.start for cut in block)


@NUMPY_KERNELS.binds(ElementwiseKernel)
def bind_elementwise(kernel: ElementwiseKernel, arrays: KernelArrays) -> Action:
    (result,) = arrays.results
    scratch = arrays.scratch[0] if arrays.scratch else None
    program = bind_program(kernel.num_inputs, kernel.ops, kernel.registers, scratch)
    blocks = blocks_of(kernel.dims, kernel.block)
    if len(blocks) == 1 and len(kernel.ops) == 1:
        function = program.functions[0]
        operands = [arrays.operands[r] for r in kernel.ops[0].operands]
        return lambda: function(result, *operands)

    def run() -> None:
        for block in blocks:
            inputs = [part(operand, block) for operand in arrays.operands]
            program.run(inputs, part(result, block), shape_of(block))

    return run
