"""Lowering of reduce: as a fusion of one instruction, by the reducer's scalar program, or by the evaluator."""

from __future__ import annotations

from runtime.emit.fused_kernel import kernel_of
from runtime.emit.reference import emit_kernel
from runtime.emit.scalar_program import scalar_program
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.plan_cache import cached_plan_alone
from runtime.fusion.row_fusion import RowFusionPlan
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.kernel import Kernel
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.thunks import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs


def program_reduce_kernel(instruction: HloInstruction) -> ProgramReduceKernel | None:
    """Return the kernel of a reduce with an arbitrary reducer, such as argmax.

    Returns None if the reducer is no scalar program of known operations, or if its types are not those of the operands.
    """
    program = scalar_program(instruction.to_apply)
    shapes = [operand.array_shape for operand in instruction.operands]
    if program is None or any(
        shape.element_type is not kind
        for shape, kind in zip(shapes, program.parameters, strict=True)
    ):
        return None
    axes = tuple(sorted(instruction.attrs_as(DimensionsAttrs).dimensions))
    return ProgramReduceKernel(program, axes)


def emit_reduce(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a reduce: a fusion kernel, a ProgramReduceKernel, or a call of the reference evaluator."""
    found = cached_plan_alone(instruction)
    kernel: Kernel | None
    if found is None:
        kernel = program_reduce_kernel(instruction)
    else:
        assert isinstance(found.plan, LoopFusion | RowFusionPlan)
        kernel = kernel_of(found.plan, arrays.operands)
    return emit_kernel(kernel, instruction, arrays, device)


LOWERINGS.add(Opcode.REDUCE, Lowering(emit_reduce))
