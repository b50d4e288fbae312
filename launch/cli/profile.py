"""`spmd profile MODULE`: run some steps, and tell what of their communication was hidden, what was not, and why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cli import UsageError
from launch.cli.arguments import (
    add_backend,
    add_memory_limit,
    add_program_arguments,
    add_seed,
    positive,
)
from launch.cli.bench import DEVIATION
from launch.cli.output_path import require_writable
from launch.cli.program import dispatch, program_here
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.on_ranks import program_on_ranks
from launch.data.input_file import read_at_most
from launch.data.inputs import SeededInputs
from launch.entry import Entry
from launch.execution import execute_steps
from launch.ranks.agreement import agree
from launch.report.overlap.as_json import as_json
from launch.report.overlap.model import OverlapReport
from launch.report.overlap.read import MAX_BYTES, TraceError, read_trace, run_of_trace
from launch.report.overlap.report import overlap_report
from launch.report.overlap.text import format_report
from launch.report.recording import Recording
from launch.report.timeline_page.page import timeline_page
from launch.report.trace import recorded_trace
from launch.target.backends import note_hosted
from runtime.device_program import require_memory
from runtime.executable import Executable
from spmd.hlo import HloModule
from spmd.output_file import write_file

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

STEPS = 16
WARM_UP = 3
_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a module's step on small random inputs, alternately as scheduled and as a reference step, which waits for "
        "every collective where it starts, and report on both. Runs on the ranks of an MPI job (spmd launch, mpirun), "
        "else on devices of this process."
    )
    add_program_arguments(parser, required=False)
    add_memory_limit(parser)
    parser.add_argument(
        "--steps",
        type=positive,
        default=STEPS,
        metavar="K",
        help=f"run K steps as scheduled, and K reference steps (default: {STEPS})",
    )
    parser.add_argument(
        "--warm-up",
        type=positive,
        default=WARM_UP,
        metavar="W",
        help=f"run W steps before them, which are not measured (default: {WARM_UP})",
    )
    add_seed(parser)
    add_backend(parser)
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="F.json",
        help="write the timeline of all devices, for ui.perfetto.dev, chrome://tracing and --timeline",
    )
    parser.add_argument(
        "--html", type=Path, metavar="F", help="write the timeline and the report as a page"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="F.json",
        help="report on a timeline that --trace or `spmd run --profile` wrote; nothing is run",
    )
    parser.add_argument(
        "--top",
        type=positive,
        default=_MOST,
        metavar="K",
        help="list the K most expensive collectives (default: %(default)s)",
    )
    parser.set_defaults(run=run, module=None)


def run(options: argparse.Namespace) -> int:
    if (options.module is None) == (options.timeline is None):
        raise UsageError(
            "expected a MODULE to run or --timeline F.json to report on, one of the two"
        )
    if options.timeline is not None:
        return _run_timeline(options)
    return dispatch(options, _run_here, _run_as_rank, (options.trace, options.html))


def _run_timeline(options: argparse.Namespace) -> int:
    require_writable(options.trace, options.html)
    data = read_at_most(options.timeline, MAX_BYTES, TraceError)
    _report(options, overlap_report(read_trace(data, str(options.timeline))), None)
    if options.trace is not None:
        write_file(options.trace, data)
    return 0


def _run_here(options: argparse.Namespace) -> int:
    executable = program_here(options).executable
    require_memory(executable.program, options.memory_limit)
    executable.record, executable.reference_every = True, 2
    _measure(options, executable)
    return 0


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    def agreed_values() -> dict[str, str]:
        asked = (options.devices, options.steps, options.warm_up, options.seed)
        return {"options": f"{compile_options(options)} {asked}"}

    program = program_on_ranks(options, world, agreed_values, record=True, reference_every=2)

    def ready() -> tuple[str, dict[str, str]]:
        require_memory(program.executable.program, options.memory_limit)
        return "ready", {}

    agree(world, ready)
    _measure(options, program.executable)
    world.barrier()
    return 0


def _measure(options: argparse.Namespace, executable: Executable) -> None:
    """Run the steps, and report on rank 0."""
    if executable.devices[0] == 0:
        note_hosted(executable)
    shapes = [argument.shape for argument in executable.inputs]
    feedback = Entry.of_executable(executable).feedback
    state = executable.put(SeededInputs(options.seed, shapes, DEVIATION))
    recording = Recording(executable, after=options.warm_up)
    steps = options.warm_up + 2 * options.steps
    execute_steps(executable, state, steps, feedback, recording.step)
    trace = recorded_trace(executable, recording.gather(), compile_options(options).machine)
    if trace is None:
        return
    if options.trace is not None:
        write_file(options.trace, json.dumps(trace))
    _report(options, overlap_report(run_of_trace(trace, executable.module.name)), executable.module)


def _report(options: argparse.Namespace, report: OverlapReport, module: HloModule | None) -> None:
    if options.html is not None:
        write_file(options.html, timeline_page(report, module))
    if options.json:
        print(json.dumps(as_json(report)))
    else:
        print(format_report(report, options.top))
