"""Lowering of elementwise instructions to loops of one operation."""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.codegen.ir.element_operations import has_operation
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.records.loop import operation_loop
from runtime.program.scalar_program import ElementSignature
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.opdef import OPS


def is_elementwise(opcode: Opcode) -> bool:
    """Return whether ``opcode`` is an elementwise operation that this file lowers.

    Copies are excluded, and elementwise opcodes that other files lower.
    """
    return OPS[opcode].elementwise and opcode not in _NOT_HERE


#: Elementwise opcodes that are copies, or that other files lower.
_NOT_HERE = frozenset(
    {Opcode.COPY, Opcode.BITCAST_CONVERT, Opcode.MAP, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY}
)


def emit_elementwise(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of an elementwise instruction: a loop, or a call of the reference evaluator."""
    signature = ElementSignature(
        instruction.opcode,
        tuple(operand.array_shape.element_type for operand in instruction.operands),
        instruction.array_shape.element_type,
        instruction.attrs,
    )
    if not has_operation(signature):
        return emit_reference(instruction, arrays, device)
    # Operands of select and clamp may be scalars.
    operands = tuple(
        array
        if array.view.dims == instruction.dims
        else ArrayView(array.slice, array.view.broadcast(instruction.dims, ()))
        for array in arrays.operands
    )
    (result,) = arrays.results
    kernel = operation_loop(signature, [array.view for array in operands], result.view)
    return KernelThunk(instruction.name, kernel, operands, arrays.results)


def in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (0, operand) for the operands of the same sizes whose elements have the size of the result's.

    Every element is read at its own index before it is written, so the result may be the memory of such an operand.
    """
    result = instruction.array_shape
    shapes = [operand.array_shape for operand in instruction.operands]
    return tuple(
        (0, i)
        for i, shape in enumerate(shapes)
        if shape.dims == result.dims
        and shape.element_type.byte_size == result.element_type.byte_size
    )


for _opcode in LOWERINGS.keys_of(__name__):
    LOWERINGS.add(_opcode, Lowering(emit_elementwise, in_place))
