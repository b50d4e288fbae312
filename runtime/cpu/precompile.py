"""Native code that is the same for many programs: compiled on other threads, while Python compiles one."""

from __future__ import annotations

import math

from runtime.buffers.heap.interval_placement import placement_library
from runtime.cpu.collective.collective_engine import native_step_engine
from runtime.cpu.kernels.gemm.tile_choice import TILE_THRESHOLDS
from runtime.cpu.libraries.blas import begin_gemm
from runtime.cpu.step.barrier_ir import barrier_library
from runtime.cpu.step.thread_team_ir import team_library
from runtime.program.dot_matrices import operand_dims
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import PrimitiveType


def begin_fixed_code(devices: int | None) -> None:
    """``devices``: of the program, where that is known: one has no collectives."""
    placement_library()  # the first to be asked for, when buffers are assigned
    team_library()
    if devices != 1:
        barrier_library()
        native_step_engine().begin()


def begin_code_for(module: HloModule) -> None:
    """``module``: of one device."""
    if any(map(_may_gain, module.all_instructions())):
        begin_gemm()


def _may_gain(instruction: HloInstruction) -> bool:
    """A product of f32 matrices that are large enough for code of their own."""
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
    return TILE_THRESHOLDS.at(*map(math.prod, sizes))
