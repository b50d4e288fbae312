"""Lowering of reduce: as a fusion of one instruction, by the reducer's scalar program, or by the evaluator."""

from __future__ import annotations

from runtime.emit.fused_kernel import kernel_of
from runtime.emit.reference import emit_reference
from runtime.emit.scalar_program import scalar_program
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.plan_cache import cached_plan_alone
from runtime.fusion.row_fusion import RowFusionPlan
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.thunks import KernelThunk, Thunk
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


def native_reduce(instruction: HloInstruction) -> LoopFusion | RowFusionPlan | None:
    """Return the plan of a reduce as a fusion of one instruction, or None if no fusion emitter supports it."""
    found = cached_plan_alone(instruction)
    if found is None:
        return None
    assert isinstance(found.plan, LoopFusion | RowFusionPlan)
    return found.plan


def emit_reduce(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a reduce: a fusion kernel, a ProgramReduceKernel, or a call of the reference evaluator."""
    plan = native_reduce(instruction)
    if plan is not None:
        return KernelThunk(
            instruction.name,
            kernel_of(plan, arrays.operands),
            arrays.operands,
            arrays.results,
        )
    kernel = program_reduce_kernel(instruction)
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results)


LOWERINGS.add(Opcode.REDUCE, Lowering(emit_reduce))
