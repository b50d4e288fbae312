"""Waterfall: what a step consists of, from the arithmetic at published rates to the step that is predicted.

Each part is the difference between the same program's times on two machines that differ in one respect. All parts add
up to the step.
"""

from __future__ import annotations

from dataclasses import replace

from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.bound import Bounds
from collectives.simulate.program import program_of
from collectives.simulate.result import Simulation
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import Attained, MachineDescription

_NO_LIMIT = 1e30


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Parts of a step, in seconds, that add up to it.

    arithmetic: all kernels at the published rates, as if memory were infinitely fast.
    attained: what products and attention take longer because of power limits, tiles and waves.
    memory: what kernels take longer because they wait for memory.
    starts: to dispatch and begin kernels.
    slowest: what the slowest device takes longer than the median one.
    slowed: what kernels take longer while collectives occupy processors.
    exposed: waiting for collectives, and the device's delay at the beginning.
    """

    arithmetic: float
    attained: float
    memory: float
    starts: float
    slowest: float
    slowed: float
    exposed: float


def waterfall(
    module: HloModule,
    machine: MachineDescription,
    estimator: RooflineEstimator,
    found: Simulation,
) -> Waterfall:
    """Return the parts of the step ``found`` of the scheduled ``module``, which ``estimator`` predicts on the slowest
    of the devices that ``machine`` describes.
    """
    branches = program_of(module, (estimator,)).branches

    def compute(described: MachineDescription) -> float:
        return Bounds(estimator.on(described), branches).of(module.entry).compute

    without_starts = _without_starts(machine)
    sums = [
        compute(_as_published(_without_memory(without_starts))),
        compute(_without_memory(without_starts)),
        compute(without_starts),
        compute(machine),
    ]
    return Waterfall(
        arithmetic=sums[0],
        attained=sums[1] - sums[0],
        memory=sums[2] - sums[1],
        starts=sums[3] - sums[2],
        slowest=found.compute - sums[3],
        slowed=found.slowed,
        exposed=found.seconds - found.compute - found.slowed,
    )


def _without_starts(machine: MachineDescription) -> MachineDescription:
    return replace(machine, kernel_seconds=0.0, thunk_seconds=0.0, row_seconds=0.0)


def _without_memory(machine: MachineDescription) -> MachineDescription:
    levels = tuple(replace(level, bandwidth=_NO_LIMIT) for level in machine.levels)
    return replace(machine, levels=levels)


def _as_published(machine: MachineDescription) -> MachineDescription:
    rates = tuple((kind, replace(one, attained=1.0)) for kind, one in machine.rates)
    return replace(
        machine, rates=rates, attained=Attained(), tiled=None, fused_attention=None, products=()
    )
