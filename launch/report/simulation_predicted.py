"""Durations that a simulation takes from a prediction: seconds of each instruction of a program compiled for this
machine."""

from __future__ import annotations

import math

from collectives.cost.profiled import Durations
from launch.report.simulation_durations import of_one_execution
from runtime.cpu.prediction.step import predicted_step
from runtime.executable import Executable
from runtime.program.thunks import CollectiveStartThunk
from spmd.machine.description import MachineDescription


def predicted_durations(
    executable: Executable, machine: MachineDescription, cores: int
) -> Durations:
    """Return the durations of one execution. Devices that share a core take turns."""
    module = executable.module
    turns = math.ceil(executable.num_devices / cores)
    kernels: list[tuple[str, float]] = []
    exchanges: list[tuple[str, float]] = []
    for one in predicted_step(executable.program, module, machine, cores).thunks:
        found = exchanges if isinstance(one.thunk, CollectiveStartThunk) else kernels
        found.append((one.thunk.name, turns * one.seconds))
    return Durations(of_one_execution(kernels, module), of_one_execution(exchanges, module))
