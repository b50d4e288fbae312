"""Sizes of planted work and memory that make the same trouble on a fast processor and on a slow one."""

from __future__ import annotations

import math
from collections.abc import Callable

from collectives.cost.roofline import RooflineEstimator
from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.errors import SpmdError
from spmd.hlo.opcode import Opcode
from spmd.machine.description import MachineDescription
from spmd.text.parser import parse_module


class NotPlantedError(SpmdError):
    """A program that does not have the trouble that it is to have."""


def work_for(share: float, module: Callable[[int], str], machine: MachineDescription) -> int:
    """Return the number of pieces of ``module`` whose products take ``share`` of the time of one reduction.

    Both are predicted as if they ran alone.
    """
    program = parse_module(module(1))
    estimator = RooflineEstimator.of(program, machine)
    instructions = program.entry.instructions
    piece = sum(estimator.compute(x) for x in instructions if x.opcode is Opcode.DOT)
    reductions = [x for x in instructions if x.opcode is Opcode.ALL_REDUCE]
    reduction = max(estimator.collective(x).seconds for x in reductions)
    return math.ceil(share * reduction / piece)


def limit_between(module: str, machine: MachineDescription) -> int:
    """Return bytes of a device that are enough where nothing is hidden, and too few for hiding as without a limit.

    Raises:
        NotPlantedError: Hiding takes no memory.
    """
    hidden = _needed(module, CompileOptions(machine=machine))
    plain = _needed(module, CompileOptions(machine=machine, without=("latency-hiding",)))
    if hidden <= plain:
        raise NotPlantedError(f"{hidden:,} bytes with its reduction hidden, {plain:,} without")
    return (hidden + plain) // 2


def _needed(module: str, options: CompileOptions) -> int:
    program = compile_module(parse_module(module), None, options).program
    return sum(allocation.size for allocation in program.assignment.allocations)
