"""Compilations for `spmd simulate`: of the program, and of the same program without the passes that overlap."""

from __future__ import annotations

from dataclasses import replace

from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.data_parallel import with_more_replicas
from collectives.simulate.least_step import LeastStep, least_step
from collectives.simulate.stragglers import slowest_of
from launch.collective_groups import OVERLAPPING
from launch.options import CompileOptions
from launch.pipeline import Compilation, forked, later_stages, partition, stages
from spmd.analysis.group_members import require_every_device
from spmd.analysis.stated_trips import require_trips
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.library_call_expander import LibraryCallExpander
from spmd.passes.library_product_fusion import LibraryProductFusion
from spmd.passes.pipeline import Pipeline
from spmd.text.stage import device_count
from spmd.verifier.verifier import verify

#: What a program that is scheduled already still needs, so that all of it has a cost.
_LIBRARY_CALLS = Pipeline("library calls", (LibraryProductFusion(), LibraryCallExpander()))


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """A module that is compiled with ``options``.

    slowest: the machine, with the rates of its slowest device, which ``estimator`` has. waiting: the module as it is
    before the passes that overlap collectives; None if no bound is wanted or none of these passes runs.
    """

    options: CompileOptions
    compilation: Compilation
    slowest: MachineDescription
    estimator: RooflineEstimator
    waiting: Compilation | None

    def least(self) -> LeastStep | None:
        """Return the least step without the passes that overlap collectives; None if there is no ``waiting``.

        The remaining stages of ``waiting`` run, so it can be called once.
        """
        if self.waiting is None:
            return None
        *_, (_, plain) = later_stages(self.waiting, _waiting(self.options))
        return _least_in(plain, self.options, self.slowest)


def simulated_program(
    module: HloModule,
    devices: int | None,
    options: CompileOptions,
    *,
    replicas: int = 1,
    is_timed: bool = False,
    has_bound: bool = False,
) -> SimulatedProgram:
    """Compile ``module`` with ``replicas`` times as many replicas.

    is_timed: measured times are known, so that no device is slower than others. has_bound: ``least`` will be called.
    Raises TripCountError if the program has loops of unknown length and is not timed.
    """
    given = module
    if replicas > 1:
        module, devices = with_more_replicas(partition(module, devices, options), replicas), None
    waiting = None
    if has_bound and not is_timed and _may_overlap(module, options):
        compilation, waiting = forked(module, devices, options, _waiting(options))
        *_, (_, compilation) = later_stages(compilation, options)
    else:
        compilation = compiled_for(module, devices, options)
    slowest = options.machine
    if not is_timed:
        require_trips(compilation.module, given)
        slowest = slowest_of(options.machine, compilation.devices)
    estimator = RooflineEstimator.of(compilation.module, slowest, dict(options.costs))
    return SimulatedProgram(options, compilation, slowest, estimator, waiting)


def compiled_for(module: HloModule, devices: int | None, options: CompileOptions) -> Compilation:
    """Return ``module`` after all stages. One that is scheduled already keeps its order; only calls of libraries are
    replaced, by the operations that they stand for."""
    if module.stage is Stage.SCHEDULED:
        count = devices if devices is not None else device_count(module)
        program = clone_module(module)
        program.num_partitions = max(count // program.replica_count, 1)
        require_every_device(program)
        if _LIBRARY_CALLS.run(program):
            verify(program)
        return Compilation(program, count, options.machine)
    *_, (_, compilation) = stages(module, devices, options)
    return compilation


def least_of(module: HloModule, devices: int | None, options: CompileOptions) -> LeastStep | None:
    """Return the least step of ``module`` without the passes that overlap collectives, on the machine of ``options``;
    None if none of them runs on it.
    """
    if not _may_overlap(module, options):
        return None
    *_, (_, plain) = stages(module, devices, _waiting(options))
    return _least_in(plain, options, options.machine)


def _may_overlap(module: HloModule, options: CompileOptions) -> bool:
    """Return whether passes that overlap collectives run on ``module``."""
    return module.stage is not Stage.SCHEDULED and options.machine.overlaps


def _waiting(options: CompileOptions) -> CompileOptions:
    """Return ``options`` without the passes that overlap collectives."""
    return replace(options, without=(*options.without, *OVERLAPPING))


def _least_in(
    plain: Compilation, options: CompileOptions, slowest: MachineDescription
) -> LeastStep:
    """Return the least step of the compiled program on devices that are all like ``slowest``."""
    estimator = RooflineEstimator.of(plain.module, slowest, dict(options.costs))
    return least_step(plain.module, estimator, options.machine.busy)
