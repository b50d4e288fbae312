"""Lowering of ragged-dot."""

from __future__ import annotations

from runtime.emit.reference import parentless
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.records.ragged_dot import RaggedDotKernel
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def emit_ragged_dot(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a ragged product."""
    kernel = RaggedDotKernel(parentless(instruction))
    return KernelThunk(instruction.name, kernel, arrays.operands, arrays.results)


LOWERINGS.add(Opcode.RAGGED_DOT, Lowering(emit_ragged_dot))
