"""Early compilation of native code that many programs share. Other threads run it while Python compiles a program."""

from __future__ import annotations

import math

from runtime.buffers.heap.interval_placement import placement_library
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.libraries.blas import begin_gemm
from runtime.cpu.step.barrier_engine import barrier_library
from runtime.cpu.step.worker import team_library
from runtime.program.dot_matrices import operand_dims
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import PrimitiveType


def begin_fixed_code(devices: int | None) -> None:
    """Start compiling the native code that depends on no program.

    devices: number of devices, or None if it is unknown. A single device needs no code of barriers and collectives.
    """
    placement_library()  # buffer assignment needs it first
    team_library()
    if devices != 1:
        barrier_library()
        native_collective_engine().begin()


def begin_code_for(module: HloModule) -> None:
    """Start compiling the tile unit's f32 product if ``module``, the program of one device, may use it."""
    if any(map(_may_gain, module.all_instructions())):
        begin_gemm()


def _may_gain(instruction: HloInstruction) -> bool:
    """Return whether the instruction is a product of f32 matrices that is faster on a tile unit than by BLAS."""
    if (
        instruction.opcode is not Opcode.DOT
        or instruction.array_shape.element_type is not PrimitiveType.F32
    ):
        return False
    lhs, rhs = (operand.array_shape.dims for operand in instruction.operands)
    left, right = operand_dims(instruction)
    sizes = [
        [lhs[d] for d in left.rows],
        [rhs[d] for d in right.columns],
        [lhs[d] for d in left.columns],
    ]
    return tuning.TILE_THRESHOLDS.at(*map(math.prod, sizes))
