"""Lowering of reshapes that strides cannot describe: the elements are copied in row-major order."""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.strides import StridedView, dense_strides
from runtime.program.thunks import CopyThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def emit_reshape(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk that copies the operand to the result, which is seen with the operand's sizes.

    The reference evaluator computes a bitcast to another element type.
    """
    (source,), (result,) = arrays.operands, arrays.results
    kind = source.view.element_type
    if kind is not result.view.element_type:
        return emit_reference(instruction, arrays, device)
    strides = dense_strides(source.view.dims, kind.byte_size)
    target = ArrayView(result.slice, StridedView(kind, source.view.dims, strides, 0))
    return CopyThunk(instruction.name, source, target)


for _opcode in (Opcode.RESHAPE, Opcode.BITCAST):
    LOWERINGS.add(_opcode, Lowering(emit_reshape))
