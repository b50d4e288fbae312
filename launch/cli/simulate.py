"""`spmd simulate MODULE --topology T`: the step on a described machine of any size, none of which need be here."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from collectives.cost.custom_calls import MAX_BYTES as MAX_COST_BYTES
from collectives.cost.custom_calls import CallCost, read_call_cost
from collectives.cost.profiled import MAX_BYTES
from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.data_parallel import with_more_replicas
from collectives.simulate.least_step import LeastStep, least_step
from collectives.simulate.result import Simulation, StepRange
from collectives.simulate.simulate import SimulationOptions, simulate
from collectives.simulate.stragglers import slowest_of
from collectives.simulate.waterfall import waterfall
from launch.cli.arguments import add_module_arguments, positive
from launch.cli.output_path import require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module
from launch.collective_groups import OVERLAPPING
from launch.data.input_file import read_at_most
from launch.options import CompileOptions
from launch.pipeline import Compilation, forked, later_stages, partition, stages
from launch.report.simulation import as_json, fits, format_simulation
from launch.report.simulation_durations import read_timed, simulate_timed
from launch.report.simulation_trace import simulation_trace
from launch.target.machine_option import described
from runtime.interpreter import settings_for_compiling
from spmd.analysis.group_members import require_every_device
from spmd.analysis.stated_trips import require_trips, state_trips
from spmd.errors import SpmdError
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.machine.description import MachineDescription
from spmd.output_file import write_file
from spmd.text.stage import device_count

_MOST = 20
#: Probability with which no device is slower than the slowest one of the upper step time.
_WORST = 0.95
#: Largest number of digits of a trip count.
_LONGEST_COUNT = 15


class InputFileError(SpmdError):
    """A file that an option names and that cannot be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a module for a described machine and simulate its step: times, and the causes of exposed "
        "collectives."
    )
    add_module_arguments(parser)
    parser.add_argument(
        "--topology",
        required=True,
        metavar="T",
        help="the machine: dgx-h100, dgx-h200, tcp-cluster, cpu-avx512, or a description that `spmd calibrate -o` "
        "wrote (F.json); T{links=0.25} has links with a quarter of the bandwidth",
    )
    parser.add_argument(
        "--data-parallel",
        type=positive,
        default=1,
        metavar="K",
        help="simulate K times as many replicas of the data axis, on K times as many devices: per-device shapes stay "
        "the same, groups that reduce over replicas grow",
    )
    parser.add_argument(
        "--cost",
        type=_target_and_file,
        action="append",
        default=[],
        metavar="TARGET=F.json",
        help='cost of a custom call to TARGET: {"seconds": s}, or {"flops": n, "bytes": n}; may be repeated',
    )
    parser.add_argument(
        "--durations",
        type=Path,
        metavar="F.json",
        help="use measured times instead of predicted ones: a trace of `spmd run --profile`, or "
        "{instruction: seconds}",
    )
    parser.add_argument(
        "--trips",
        type=_loop_and_trips,
        action="append",
        default=[],
        metavar="[LOOP=]N",
        help="trip count of the loop LOOP, or of every loop whose trip count the module does not determine; may be "
        "repeated",
    )
    parser.add_argument(
        "--no-bound",
        action="store_true",
        help="do not compute the bound of what could be hidden (for which the last passes run once more)",
    )
    parser.add_argument(
        "--trace", type=Path, metavar="F.json", help="write the step as a trace for Perfetto"
    )
    output_format = parser.add_mutually_exclusive_group()
    output_format.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    output_format.add_argument(
        "--top",
        type=positive,
        default=_MOST,
        metavar="K",
        help="list the K collectives with the longest exposed time (default: %(default)s)",
    )
    parser.set_defaults(run=run)


@settings_for_compiling()
def run(options: argparse.Namespace) -> int:
    require_writable(options.trace)
    machine = described(options.topology)
    costs = {target: _cost(file) for target, file in options.cost}
    module = read_module(options)
    state_trips(module, options.trips)
    if options.data_parallel > 1:
        module = with_more_replicas(partition(module, options.devices), options.data_parallel)
        options.devices = None
    wanted = replace(compile_options(options), machine=machine, costs=tuple(costs.items()))
    plain = None
    if options.durations is None and not options.no_bound and _may_overlap(module, wanted):
        compilation, plain = forked(module, options.devices, wanted, _waiting(wanted))
        *_, (_, compilation) = later_stages(compilation, wanted)
    else:
        compilation = compiled_for(module, options.devices, wanted)
    if options.durations is None:
        require_trips(compilation.module)
    slowest = slowest_of(machine, compilation.devices) if options.durations is None else machine
    estimator = RooflineEstimator.of(compilation.module, slowest, costs)
    found = _simulated(compilation, estimator, options)
    parts = None
    if options.durations is None:
        found = replace(found, step_range=_step_range(compilation, estimator, options))
        parts = waterfall(compilation.module, machine, estimator, found)
    if plain is not None and found.communication:
        *_, (_, plain) = later_stages(plain, _waiting(wanted))
        found = replace(found, least=_least_in(plain, wanted, slowest))
    if options.trace is not None:
        write_file(options.trace, json.dumps(simulation_trace(found)))
    if options.json:
        print(json.dumps(as_json(found, machine, parts)))
    else:
        print(format_simulation(found, machine, options.top, parts))
    return 0 if fits(found, machine) else 1


def compiled_for(module: HloModule, devices: int | None, options: CompileOptions) -> Compilation:
    """Return ``module`` after all stages; unchanged if it is scheduled already."""
    if module.stage is Stage.SCHEDULED:
        count = devices if devices is not None else device_count(module)
        program = clone_module(module)
        program.num_partitions = max(count // program.replica_count, 1)
        require_every_device(program)
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


def _step_range(
    compilation: Compilation, estimator: RooflineEstimator, options: argparse.Namespace
) -> StepRange | None:
    """Return the range of the step, as far as devices differ; None if they do not."""
    machine = compilation.machine
    slow = slowest_of(machine, compilation.devices, _WORST)
    if slow == machine:
        return None
    best, worst = (
        _simulated(compilation, estimator.on(one), options).seconds for one in (machine, slow)
    )
    return StepRange(best, worst)


def _simulated(
    compilation: Compilation, estimator: RooflineEstimator, options: argparse.Namespace
) -> Simulation:
    """Return the simulated step of the compiled program on devices whose times ``estimator`` predicts."""
    program, overlap = compilation.module, compilation.overlap
    asked = SimulationOptions(
        busy=compilation.machine.busy,
        limited={one.name: one.limited for one in overlap.collectives} if overlap else {},
        timeline=options.trace is not None,
    )
    if options.durations is None:
        return simulate(program, [estimator], asked)
    timed = read_timed(
        read_at_most(options.durations, MAX_BYTES, InputFileError), str(options.durations), program
    )
    return simulate_timed(program, timed, estimator, asked)


def _target_and_file(text: str) -> tuple[str, Path]:
    """Parse TARGET=FILE (an argparse type)."""
    target, equals, file = text.partition("=")
    if not (target and equals and file):
        raise argparse.ArgumentTypeError(f"expected TARGET=FILE, found {text!r}")
    return target, Path(file)


def _loop_and_trips(text: str) -> tuple[str, int]:
    """Parse LOOP=N, or N for all loops (an argparse type)."""
    loop, _, trips = text.rpartition("=")
    if not trips.isdecimal() or len(trips) > _LONGEST_COUNT or text.startswith("="):
        raise argparse.ArgumentTypeError(f"expected LOOP=N or N, found {text!r}")
    return loop, int(trips)


def _cost(file: Path) -> CallCost:
    return read_call_cost(read_at_most(file, MAX_COST_BYTES, InputFileError), str(file))
