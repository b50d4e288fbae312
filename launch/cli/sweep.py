"""`--sweep NAME=V,V,..`: one simulation for each value of a field of the machine, or of the data parallelism."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from collectives.simulate.result import Simulation
from launch.cli.arguments import positive
from launch.cli.terminal_line import TerminalLine
from launch.report.sweep import SweepRow
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.overrides import with_override

#: Name of the axis whose values are numbers of copies of the replicas.
DATA_PARALLEL = "data-parallel"

#: (machine, times as many replicas) -> the simulated step.
Simulate: TypeAlias = Callable[[MachineDescription, int], Simulation]


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """The field that a sweep varies, and its values as they were written."""

    name: str
    values: tuple[str, ...]


def sweep_axis(text: str) -> SweepAxis:
    """Parse NAME=V,V,.. (an argparse type)."""
    name, _, listed = text.partition("=")
    values = tuple(listed.split(","))
    if not name or not all(values):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,VALUE,.., found {text!r}")
    if name == DATA_PARALLEL:
        for value in values:
            positive(value)
    return SweepAxis(name, values)


def sweep_rows(
    axis: SweepAxis, machine: MachineDescription, replicas: int, simulate: Simulate
) -> list[SweepRow]:
    """Return a row for each value of ``axis``, with ``machine`` and ``replicas`` where the axis does not change them.

    All machines are made before the first simulation. Raises MachineError if one cannot be.
    """
    if axis.name == DATA_PARALLEL:
        cases = [(value, machine, int(value)) for value in axis.values]
    else:
        cases = [
            (value, with_override(machine, axis.name, value), replicas) for value in axis.values
        ]
    progress = TerminalLine(delay=0.0)
    rows = []
    try:
        for number, (value, one, copies) in enumerate(cases, 1):
            progress.show(f"{axis.name}={value}, {number} of {len(cases)}")
            rows.append(SweepRow(value, simulate(one, copies), one))
    finally:
        progress.clear()
    return rows
