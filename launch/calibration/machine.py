"""All that is measured, put together into a description."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from launch.calibration.convolutions import ConvolutionOptions, convolution_classes
from launch.calibration.loops import LoopSizes, levels, rates, row_seconds
from launch.calibration.products import ProductOptions, matrix_rate, product_classes
from launch.calibration.programs import ProgramSizes, dispatch_seconds, exchange
from runtime.blas import BlasThreads
from spmd.machine.description import MachineDescription


@dataclass(frozen=True)
class CalibrationOptions:
    """How much is measured, and for how long."""

    loops: LoopSizes = field(default_factory=LoopSizes)
    products: ProductOptions = field(default_factory=ProductOptions)
    convolutions: ConvolutionOptions = field(default_factory=ConvolutionOptions)
    programs: ProgramSizes = field(default_factory=ProgramSizes)


def measure_machine(cpu: str, options: CalibrationOptions) -> MachineDescription:
    """This machine, one core of it while all are at work. ``cpu``: what it is called."""
    with BlasThreads(1):
        found_levels = levels(options.loops)
        products = product_classes(options.products, found_levels)
        thunk, kernel = dispatch_seconds(options.programs)
        machine = MachineDescription(
            name="calibrated",
            kind="cpu",
            source=f"measured on one core of {cpu}",
            units=1,
            levels=found_levels,
            rates=tuple(
                (kind, rates(kind, matrix_rate(products, kind), options.loops))
                for kind in options.loops.types
            ),
            kernel_seconds=kernel,
            row_seconds=row_seconds(options.loops),
            thunk_seconds=thunk,
            exchanges=(exchange(options.programs),),
            products=products,
            convolutions=convolution_classes(options.convolutions, found_levels),
        )
    return replace(machine, name=f"calibrated-{machine.digest[:8]}")
