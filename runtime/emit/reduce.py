"""reduce as a row fusion of itself, of several arrays by their reducer, else by NumPy or by the evaluator."""

from __future__ import annotations

from runtime.emit.fusion import kernel_of
from runtime.emit.reference import emit_reference
from runtime.emit.scalar_program import scalar_program
from runtime.fusion.planned import planned_alone
from runtime.fusion.row_fusion import RowFusion
from runtime.kernels.elementwise import Registers
from runtime.kernels.program_reduce import ProgramReduceKernel
from runtime.kernels.reduce import ReduceKernel
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.reduction import reduction_kind
from spmd.shape import ArrayShape, PrimitiveType


def known_reduction(instruction: HloInstruction) -> ReductionKind | None:
    """What a one-operand reduce computes, if there is a kernel for it."""
    if instruction.num_operands != 2 or not instruction.attrs_as(DimensionsAttrs).dimensions:
        return None
    kind = instruction.array_shape.element_type
    if kind.bits < 8 and kind is not PrimitiveType.PRED:
        return None
    return reduction_kind(instruction.to_apply)


def accumulator(kind: PrimitiveType) -> PrimitiveType:
    """Sums of floats narrower than f32 are kept in f32."""
    return PrimitiveType.F32 if kind.is_floating and kind.bits < 32 else kind


def reduce_kernel(instruction: HloInstruction) -> ReduceKernel | None:
    reduction = known_reduction(instruction)
    if reduction is None:
        return None
    kind = instruction.array_shape.element_type
    dims = instruction.operand(0).dims
    axes = tuple(sorted(instruction.attrs_as(DimensionsAttrs).dimensions))
    registers = Registers((), 0, 1)
    return ReduceKernel(dims, axes, reduction, 1, (), dims, registers, kind, accumulator(kind))


def scratch_of(kernel: ReduceKernel) -> tuple[ArrayShape, ...]:
    """In the order in which the kernel takes them."""
    shapes = []
    if kernel.registers.count:
        size = kernel.registers.count * kernel.registers.item_bytes * kernel.block_elements
        shapes.append(ArrayShape(PrimitiveType.U8, (size,)))
    if kernel.cuts_axes:
        shapes.append(ArrayShape(kernel.accumulate, (kernel.partial_elements,)))
    if kernel.accumulate is not kernel.element_type:
        shapes.append(ArrayShape(kernel.accumulate, tuple(kernel.dims[d] for d in kernel.kept)))
    return tuple(shapes)


def scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    kernel = None if native_reduce(instruction) else reduce_kernel(instruction)
    return () if kernel is None else scratch_of(kernel)


def program_reduce_kernel(instruction: HloInstruction) -> ProgramReduceKernel | None:
    """For reducers of several arrays, such as argmax's; None where native code cannot do it.

    It takes one element after the other. A reducer of one array that is no plain sum or extreme may not be associative
    at all: there the evaluator's grouping is the definition.
    """
    if instruction.num_operands == 2:
        return None
    program = scalar_program(instruction.to_apply)
    shapes = [operand.array_shape for operand in instruction.operands]
    if program is None or any(
        shape.element_type is not kind
        for shape, kind in zip(shapes, program.parameters, strict=True)
    ):
        return None
    axes = tuple(sorted(instruction.attrs_as(DimensionsAttrs).dimensions))
    return ProgramReduceKernel(program, axes)


def native_reduce(instruction: HloInstruction) -> RowFusion | None:
    """The reduction as a fusion of one instruction; None where no emitter takes it."""
    found = planned_alone(instruction)
    if found is None:
        return None
    assert isinstance(found.plan, RowFusion)
    return found.plan


def emit_reduce(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    plan = native_reduce(instruction)
    if plan is not None:
        return KernelThunk(
            instruction.name,
            kernel_of(plan, arrays.operands),
            arrays.operands,
            arrays.results,
        )
    kernel = reduce_kernel(instruction) or program_reduce_kernel(instruction)
    if kernel is None:
        return emit_reference(instruction, arrays, device)
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results, arrays.scratch)


LOWERINGS.add(Opcode.REDUCE, Lowering(emit_reduce, scratch=scratch))
