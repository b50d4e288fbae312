"""Calibration of a machine: all probes are timed, and a machine description is computed from their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from launch.calibration.convolutions import ConvolutionOptions, convolution_classes, layer_probes
from launch.calibration.loops import (
    LoopSizes,
    element_probes,
    levels,
    memory_probes,
    rates,
    row_probes,
    row_seconds,
)
from launch.calibration.probes import Probe, Rounds, Seconds, least, spread
from launch.calibration.products import (
    ProductOptions,
    matrix_rate,
    product_classes,
    product_probes,
)
from launch.calibration.programs import (
    ProgramSizes,
    dispatch_probes,
    dispatch_seconds,
    exchange,
    exchange_probes,
    output_probes,
    step_seconds,
    wait_probes,
    wait_seconds,
)
from runtime.cpu.libraries.blas import BlasThreads
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: Number of times that each probe is timed: a disturbance of some seconds affects one round only.
ROUNDS = 3


@dataclass(frozen=True)
class Family:
    """Probes that are timed together, round after round, with ``name`` for messages."""

    name: str
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of a calibration: the sizes, types and layers that are measured, and the time of each."""

    loops: LoopSizes = field(default_factory=LoopSizes)
    products: ProductOptions = field(default_factory=ProductOptions)
    convolutions: ConvolutionOptions = field(default_factory=ConvolutionOptions)
    programs: ProgramSizes = field(default_factory=ProgramSizes)

    def families(self) -> tuple[Family, ...]:
        """Return all probes of the calibration, in the order in which their families are timed."""
        return (
            Family("memory", memory_probes(self.loops)),
            *(
                Family(f"operations of {kind}", element_probes(kind, self.loops))
                for kind in self.loops.types
            ),
            Family("rows", row_probes(self.loops)),
            *(
                Family(f"products {lhs} x {rhs} -> {result}", probes)
                for types in self.products.types
                for (lhs, rhs, result), probes in [(types, product_probes(types, self.products))]
            ),
            *(
                Family(f"convolutions of {kind}", layer_probes(kind, self.convolutions))
                for kind in self.convolutions.types
            ),
            Family("dispatch", dispatch_probes(self.programs)),
            Family("outputs", output_probes(self.programs)),
            Family("waits", wait_probes(self.programs)),
            Family("exchange", exchange_probes(self.programs)),
        )


@dataclass(frozen=True)
class Measurement:
    """Result of ``measure``: the least seconds of each probe, and the spread of each family (``probes.spread``)."""

    seconds: Seconds
    spreads: Mapping[str, float]


def measure(options: CalibrationOptions, begins: Callable[[Family], None]) -> Measurement:
    """Time all probes on every core at once. ``begins`` is called with each family before it is timed."""
    seconds: dict[Probe, float] = {}
    spreads = {}
    with BlasThreads(1):
        for family in options.families():
            begins(family)
            ready = Rounds()  # the memory of the previous family is freed
            rounds = [ready.round(family.probes) for _ in range(ROUNDS)]
            seconds |= least(rounds)
            spreads[family.name] = spread(rounds)
    return Measurement(seconds, spreads)


def described(where: str, options: CalibrationOptions, seconds: Seconds) -> MachineDescription:
    """Return the description of one core of this machine.

    where: text that names the cores. options: those of the measurement. seconds: times of all of its probes.
    """
    found_levels = levels(options.loops, seconds)
    products = product_classes(options.products, found_levels, seconds)
    thunk, kernel = dispatch_seconds(options.programs, seconds)
    step, output = step_seconds(options.programs, thunk, seconds)
    between = exchange(options.programs, found_levels, seconds)
    machine = MachineDescription(
        name="calibrated",
        kind="cpu",
        source=f"measured on one of {where}, all of them at work",
        units=1,
        levels=found_levels,
        rates=tuple(
            (kind, rates(kind, matrix_rate(products, kind), options.loops, seconds))
            for kind in options.loops.types
        ),
        kernel_seconds=kernel,
        row_seconds=row_seconds(options.loops, seconds),
        thunk_seconds=thunk,
        exchanges=(between,),
        products=products,
        convolutions=convolution_classes(options.convolutions, found_levels, seconds),
        step_seconds=step,
        output_seconds=output,
        wait_seconds=wait_seconds(options.programs, between.latency, seconds),
    )
    return replace(machine, name=f"calibrated-{machine.digest[:8]}")
