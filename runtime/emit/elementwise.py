"""Elementwise instructions as one-operation programs."""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.codegen.element_operations import ElementSignature
from runtime.kernels.blocks import MAX_BLOCK_ELEMENTS, block_dims
from runtime.kernels.element_ops import ElementOp, is_direct, may_overwrite
from runtime.kernels.elementwise import ElementwiseKernel, allocate_registers
from runtime.kernels.native_elementwise import NativeElementwiseKernel, has_native
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.opdef import OPS


def is_elementwise(opcode: Opcode) -> bool:
    """One result element from the operands' elements at its place; nothing that is a mere view."""
    return OPS[opcode].elementwise and opcode not in _NOT_HERE


#: Elementwise by definition, but copies or lowered elsewhere.
_NOT_HERE = frozenset(
    {Opcode.COPY, Opcode.BITCAST_CONVERT, Opcode.MAP, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY}
)


def element_op(instruction: HloInstruction, operands: tuple[int, ...]) -> ElementOp:
    """``instruction`` on registers."""
    return ElementOp(
        instruction.opcode,
        operands,
        tuple(operand.array_shape.element_type for operand in instruction.operands),
        instruction.array_shape.element_type,
        instruction.attrs,
    )


def one_op(instruction: HloInstruction) -> ElementOp:
    return element_op(instruction, tuple(range(instruction.num_operands)))


def filling(array: ArrayView, dims: tuple[int, ...]) -> ArrayView:
    """Scalar operands (of select, of clamp) repeated over all indices."""
    if array.view.dims == dims:
        return array
    return ArrayView(array.slice, array.view.broadcast(dims, ()))


def emit_elementwise(instruction: HloInstruction, arrays: StepArrays, _: Device) -> Thunk:
    dims = instruction.dims
    op = one_op(instruction)
    operands = tuple(filling(array, dims) for array in arrays.operands)
    signature = ElementSignature(op.opcode, op.operand_types, op.element_type, op.attrs)
    if has_native(signature):
        kernel = NativeElementwiseKernel(signature)
        return KernelThunk(instruction.name, kernel, operands, arrays.results)
    return _by_numpy(instruction, op, operands, arrays)


def _by_numpy(
    instruction: HloInstruction,
    op: ElementOp,
    operands: tuple[ArrayView, ...],
    arrays: StepArrays,
) -> Thunk:
    dims = instruction.dims
    block = dims if is_direct(op) else block_dims(dims, MAX_BLOCK_ELEMENTS)
    count = instruction.num_operands
    registers = allocate_registers(count, (op,), keep_last=False)
    kernel = ElementwiseKernel(dims, count, (op,), block, registers)
    return KernelThunk(instruction.name, kernel, operands, arrays.results)


def in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    op = one_op(instruction)
    return tuple(
        (0, i) for i in may_overwrite(op) if instruction.operand(i).dims == instruction.dims
    )


for _opcode in list(OPS):
    if is_elementwise(_opcode):
        LOWERINGS.add(_opcode, Lowering(emit_elementwise, in_place))
