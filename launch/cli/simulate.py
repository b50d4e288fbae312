"""`spmd simulate MODULE --topology T`: the step on a described machine of any size, none of which need be here."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from collectives.cost.custom_calls import MAX_BYTES as MAX_COST_BYTES
from collectives.cost.custom_calls import CallCost, read_call_cost
from collectives.cost.profiled import MAX_BYTES
from collectives.cost.roofline import RooflineEstimator
from collectives.cost.unpriced_calls import require_costs, require_costs_in_text
from collectives.simulate.result import Simulation, StepRange
from collectives.simulate.simulate import SimulationOptions, simulate
from collectives.simulate.stragglers import slowest_of
from collectives.simulate.waterfall import waterfall
from launch.cli import UsageError
from launch.cli.arguments import add_module_arguments, positive
from launch.cli.output_path import path_ending_in, require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module
from launch.cli.programs.simulated_program import SimulatedProgram, simulated_program
from launch.cli.sweep import SweepAxis, sweep_axis, sweep_rows
from launch.data.input_file import read_at_most
from launch.pipeline import Compilation
from launch.report.plot import require_matplotlib
from launch.report.simulation import as_json, fits, format_simulation
from launch.report.simulation_durations import read_timed, simulate_timed
from launch.report.simulation_page import simulation_page
from launch.report.simulation_trace import simulation_trace
from launch.report.sweep import format_sweep, sweep_json
from launch.report.sweep_image import sweep_image
from launch.target.machine_option import described
from runtime.interpreter import settings_for_compiling
from spmd.analysis.stated_trips import state_trips
from spmd.errors import SpmdError
from spmd.hlo import HloModule
from spmd.machine.description import MachineDescription
from spmd.machine.named import SHIPPED
from spmd.machine.overrides import with_override
from spmd.output_file import write_file
from spmd.text.sources.dump_directory import dumped_module, split_choice

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
    parser.epilog = (
        "Exit codes: 0 simulated; 1 simulated, but the program does not fit into the machine's memory (with --sweep: "
        "for some value); 2 bad usage or input, among it custom calls without --cost and loops without --trips; "
        "3 any other failure."
    )
    add_module_arguments(parser)
    parser.add_argument(
        "--topology",
        required=True,
        metavar="T",
        help=f"the machine: {', '.join(SHIPPED)}, or a description that `spmd calibrate -o` wrote (F.json); "
        "T{links=0.25} has links with a quarter of the bandwidth",
    )
    parser.add_argument(
        "--set",
        type=_name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change the machine: links=0.5 (a factor of all bandwidths), node=2 (devices of a node), or a field of "
        "its description such as attained.memory=0.9; levels.HBM3.bandwidth=2x is twice its value; may be repeated",
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
        "--sweep",
        type=sweep_axis,
        metavar="NAME=V,V,..",
        help="simulate once for each value, of data-parallel or of a name as in --set, and print a row for each",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=partial(path_ending_in, (".html", ".svg", ".png")),
        metavar="F.html|F.svg|F.png",
        help="write the simulation as a page; with --sweep: plot the rows (F.svg or F.png, with the plot extra)",
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
        "--bound",
        action="store_true",
        help="also compute how much of the communication could be hidden: the program is compiled once more, "
        "without the passes that overlap collectives, which takes up to as long again",
    )
    parser.add_argument(
        "--trace", type=Path, metavar="F.json", help="write the step as a trace for Perfetto"
    )
    output_format = parser.add_mutually_exclusive_group()
    output_format.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, or with --sweep one list, and nothing else",
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
    require_writable(options.trace, options.output)
    _require_options_that_agree(options)
    machine = described(options.topology)
    for name, value in options.set:
        machine = with_override(machine, name, value)
    costs = {target: _cost(file) for target, file in options.cost}
    module = _module(options, costs)
    if options.sweep is not None:
        return _run_sweep(module, machine, costs, options)
    program = _compiled(module, machine, options.data_parallel, costs, options)
    found = _simulated(program.compilation, program.estimator, options)
    parts = None
    if options.durations is None:
        step_range = _step_range(program.compilation, program.estimator, options)
        found = replace(found, step_range=step_range)
        parts = waterfall(program.compilation.module, machine, program.estimator, found)
    if found.communication:
        found = replace(found, least=program.least())
    if options.trace is not None:
        write_file(options.trace, json.dumps(simulation_trace(found)))
    if options.output is not None:
        write_file(options.output, simulation_page(found, machine, parts))
    if options.json:
        print(json.dumps(as_json(found, machine, parts)))
    else:
        print(format_simulation(found, machine, options.top, parts))
    return 0 if fits(found, machine) else 1


def _require_options_that_agree(options: argparse.Namespace) -> None:
    """Raise UsageError for options that cannot be combined."""
    is_page = options.output is not None and options.output.suffix == ".html"
    if options.sweep is None:
        if options.output is not None and not is_page:
            raise UsageError(
                "-o F.svg and F.png plot the rows of --sweep NAME=V,V,..: use -o F.html"
            )
        return
    if is_page:
        raise UsageError("-o F.html is of one simulation: --sweep writes F.svg or F.png")
    of_one = {"--trace": options.trace, "--durations": options.durations, "--bound": options.bound}
    for option, value in of_one.items():
        if value:
            raise UsageError(f"{option} is of one simulation: it cannot be combined with --sweep")
    if options.output is not None:
        require_matplotlib("a plot")


def _module(options: argparse.Namespace, costs: dict[str, CallCost]) -> HloModule:
    """Return the module, with the trip counts that the options state. Raises CostError, before the module is parsed if
    it is text, for custom calls without a cost."""
    if options.durations is not None:
        module = read_module(options)
    else:
        if not options.without_callbacks:
            _require_costs_in_file(options.module, costs)
        module = read_module(options)
        require_costs(module, costs)
    state_trips(module, options.trips)
    return module


def _require_costs_in_file(argument: str, costs: dict[str, CallCost]) -> None:
    """Raise CostError for custom calls without a cost in the text file that MODULE names, if it names one."""
    path, choice = split_choice(Path(argument))
    with suppress(OSError):  # read_module says what is wrong with the file
        file = dumped_module(path, choice).file if path.is_dir() else path
        if file.is_file():
            require_costs_in_text(file.read_bytes(), costs)


def _compiled(
    module: HloModule,
    machine: MachineDescription,
    replicas: int,
    costs: dict[str, CallCost],
    options: argparse.Namespace,
) -> SimulatedProgram:
    is_timed = options.durations is not None
    chosen = replace(
        compile_options(options),
        machine=machine,
        costs=tuple(costs.items()),
        # Measured times are of the instructions that ran.
        keep_attention_calls=machine.is_gpu and not is_timed,
    )
    return simulated_program(
        module,
        options.devices,
        chosen,
        replicas=replicas,
        is_timed=is_timed,
        has_bound=options.bound,
    )


def _run_sweep(
    module: HloModule,
    machine: MachineDescription,
    costs: dict[str, CallCost],
    options: argparse.Namespace,
) -> int:
    """Simulate once for each value of ``options.sweep``. Each value has a compilation of its own: kernels and schedule
    depend on the machine's rates and on the groups."""

    def simulated(machine: MachineDescription, replicas: int) -> Simulation:
        program = _compiled(module, machine, replicas, costs, options)
        return _simulated(program.compilation, program.estimator, options)

    axis: SweepAxis = options.sweep
    rows = sweep_rows(axis, machine, options.data_parallel, simulated)
    if options.output is not None:
        write_file(options.output, sweep_image(axis.name, rows, options.output.suffix[1:]))
    print(
        json.dumps(sweep_json(axis.name, rows)) if options.json else format_sweep(axis.name, rows)
    )
    return 0 if all(fits(row.found, row.machine) for row in rows) else 1


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
    machine = compilation.machine
    asked = SimulationOptions(
        busy=machine.busy,
        size_of=machine.byte_size,
        memory_of=machine.memory_bytes,
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


def _name_and_value(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE (an argparse type)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    return name, value


def _loop_and_trips(text: str) -> tuple[str, int]:
    """Parse LOOP=N, or N for all loops (an argparse type)."""
    loop, _, trips = text.rpartition("=")
    if not trips.isdecimal() or len(trips) > _LONGEST_COUNT or text.startswith("="):
        raise argparse.ArgumentTypeError(f"expected LOOP=N or N, found {text!r}")
    return loop, int(trips)


def _cost(file: Path) -> CallCost:
    return read_call_cost(read_at_most(file, MAX_COST_BYTES, InputFileError), str(file))
