"""Lowering of instructions to calls of the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable

from runtime.lowering import LOWERINGS, Device, Emit, Lowering, OpArrays
from runtime.program.kernel import Kernel
from runtime.program.records.reference import ReferenceKernel
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def parentless(instruction: HloInstruction) -> HloInstruction:
    """Return a copy of ``instruction`` that belongs to no computation. Its operands are parameters of equal shapes."""
    operands = tuple(
        HloInstruction(Opcode.PARAMETER, operand.shape, name=operand.name)
        for operand in instruction.operands
    )
    return instruction.clone(instruction.shape, operands)


def emit_reference(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk that calls the reference evaluator for ``instruction``."""
    kernel = ReferenceKernel(parentless(instruction))
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results)


def emit_kernel(
    kernel: Kernel | None, instruction: HloInstruction, arrays: OpArrays, device: Device
) -> Thunk:
    """Return the thunk of ``kernel`` or, if that is None, a call of the reference evaluator."""
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results, arrays.scratch)


def emit_with(kernel_of: Callable[[HloInstruction], Kernel | None]) -> Emit:
    """Return the function that emits an instruction as the kernel that ``kernel_of`` returns for it, or as a call of
    the reference evaluator if that is None.
    """

    def emit(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
        return emit_kernel(kernel_of(instruction), instruction, arrays, device)

    return emit


# Opcodes that always run in the reference evaluator. They are rare, so they have no kernels.
for _opcode in LOWERINGS.keys_of(__name__):
    LOWERINGS.add(_opcode, Lowering(emit_reference))
