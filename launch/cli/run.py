"""`spmd run MODULE`: compile, run and compare; on the ranks of an MPI job or on devices of this process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launch.checks.divergence import search
from launch.checks.expect import Expected
from launch.checks.reference import reference_program
from launch.checks.verdicts import Question, explain_by_rounding
from launch.cli.argument_types import positive, tolerance
from launch.cli.memory_limit_option import add_memory_limit
from launch.cli.module_argument import compile_options, read_module
from launch.cli.program import (
    Program,
    add_program_arguments,
    add_seed,
    dispatch,
    program_here,
    program_on_ranks,
)
from launch.cli.terminal_line import TerminalLine
from launch.data.feed_files import (
    FeedOptions,
    feed_digest,
    infeed_names,
    leaves_of,
    note_what_is_left,
    outfeed_for,
    write_outfeed,
)
from launch.data.output_paths import output_paths
from launch.data.printable import printable
from launch.data.tile_files import is_per_device, read_tiles, write_tiles
from launch.entry import Entry
from launch.execution import Execution, execute_steps
from launch.job import (
    JobOptions,
    JobResult,
    conclude,
    evaluate_steps,
    expected_outputs,
    format_result,
    inputs_digest,
    job_inputs,
)
from launch.pipeline import is_partitioned
from launch.ranks.agreement import agree, agree_on_code
from launch.report.trace import collect_trace
from launch.target.engine_choice import note_hosted
from runtime.arrays.host_feed import Outfeed
from runtime.compile import boundaries
from runtime.executable import Executable
from runtime.memory_limit import require_memory
from runtime.timeline.timestamps import KEPT_STEPS
from spmd.errors import CheckFailed, UnsupportedError
from spmd.hlo import HloModule
from spmd.output_file import write_file

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a module on the ranks of an MPI job (spmd launch, mpirun), else on devices of this process. "
        "Files hold global arrays, of which each rank reads its own tiles; a name with %r in it, as in in.%r.npz, "
        "stands for one file of tiles for each device."
    )
    add_program_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--inputs", type=Path, metavar="F.npz", help="inputs arg0, arg1, ...")
    add_seed(source)
    parser.add_argument(
        "--outputs", type=Path, metavar="F.npz", help="write the outputs out0, out1, ..."
    )
    parser.add_argument(
        "--expect",
        type=Path,
        metavar="F.npz",
        help="compare with these outputs of the same inputs; exit 1 if they differ",
    )
    parser.add_argument(
        "--atol",
        type=tolerance,
        metavar="A",
        help="with --expect and --check (default: case.json's, or 64 ulp)",
    )
    parser.add_argument(
        "--rtol",
        type=tolerance,
        metavar="R",
        help="with --expect and --check (default: case.json's, or by type)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the unpartitioned reference evaluator; exit 1, naming the first op that differs",
    )
    parser.add_argument(
        "--backend",
        choices=("cpu", "gpu", "reference"),
        default="cpu",
        help="what computes: this machine's cores (default: cpu), GPUs (docs/gpu.md), or the "
        "reference evaluator, unpartitioned",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="with --expect and --check: list the outputs that agree, too",
    )
    parser.add_argument(
        "--infeed",
        type=Path,
        metavar="F.npz",
        help="what infeeds take, in the order in which they take it: infeed0, infeed1, ..., one for each array",
    )
    parser.add_argument(
        "--outfeed",
        type=Path,
        metavar="F.npz",
        help="write what outfeeds give: outfeed0, outfeed1, ...",
    )
    add_memory_limit(parser)
    parser.add_argument(
        "--steps",
        type=positive,
        default=1,
        metavar="K",
        help="run K times, aliased outputs fed back (default: 1)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="F.json",
        help=f"write a timeline of the last {KEPT_STEPS} steps of all devices, for ui.perfetto.dev or chrome://tracing",
    )
    # None, so that a seed that was named can be told from the default.
    parser.set_defaults(run=run, seed=None)


def run(options: argparse.Namespace) -> int:
    return dispatch(
        options, _run_here, _run_as_rank, (options.outputs, options.outfeed, options.profile)
    )


def _run_here(options: argparse.Namespace) -> int:
    job = _job_options(options)
    job.require_inputs()
    if options.backend == "reference":
        return _run_reference(options, job)
    program = program_here(options)
    require_memory(program.executable.program, options.memory_limit)
    _require_feeds(program.executable, job)
    program.executable.record = options.profile is not None
    done, outfeed = _execute(program.executable, job)
    _write_profile(options, program.executable)
    result = _result(program.executable, done, outfeed, job)
    where = f"{program.executable.num_devices} devices of this process"
    return _conclude(options, program, result, where)


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    job = _job_options(options)

    def alike() -> dict[str, str]:
        job.require_inputs()
        if options.backend == "reference":
            raise UnsupportedError("--backend reference runs in one process, not under MPI")
        return {
            "inputs": inputs_digest(job),
            "options": str(compile_options(options)),
            "option --devices": str(options.devices),
            "option --steps": str(job.steps),
            "option --infeed": "none" if options.infeed is None else feed_digest(options.infeed),
            # The ranks gather these together.
            "option --outfeed": str(options.outfeed),
            "option --profile": "given" if options.profile else "not given",
            "wish for whole outputs (--outputs, --expect, --check)": (
                "given" if job.needs_global_outputs else "not given"
            ),
        }

    program = program_on_ranks(options, world, alike, record=options.profile is not None)
    executable = program.executable

    def ready() -> tuple[str, dict[str, str]]:
        require_memory(executable.program, options.memory_limit)
        _require_feeds(executable, job)
        if world.rank == 0 and job.expect is not None:
            # better refused now than after the run
            _expected(options, program)
        return "ready", {}

    agree(world, ready)
    done, outfeed = _execute(executable, job)
    _write_profile(options, executable)
    result = _result(executable, done, outfeed, job)
    code = 0
    if world.rank == 0:
        code = _conclude(options, program, result, f"{world.size} MPI ranks")
    return agree_on_code(world, code)


def _run_reference(options: argparse.Namespace, job: JobOptions) -> int:
    module = read_module(options)
    partitioned = is_partitioned(module, compile_options(options))
    line = TerminalLine()
    program = reference_program(
        module,
        options.devices,
        partitioned=partitioned,
        seconds=options.timeout,
        show=line.show,
    )
    reference = program.evaluate
    job.feeds.require_for(infeed_names(module))
    entry = Entry.of_module(module)
    if partitioned:
        entry = Entry.of_boundaries(module, boundaries(module))
    inputs = job_inputs(entry.inputs, job)
    try:
        feed = program.feed(job.feeds)
        result = evaluate_steps(reference, entry.feedback, inputs, job.steps, feed)
        expected = expected_outputs(entry, job, reference, program.feed(job.feeds))
    finally:
        line.clear()
    write_outfeed(job.feeds, list(result.outfeeds), writes=True)
    result = conclude(result, expected, job, output_paths(module, entry.feedback))
    if not result.ok:
        result = _judged(options, module, options.devices, entry, result, expected)
    return _report(options, entry, result, "the reference evaluator")


def _require_feeds(executable: Executable, job: JobOptions) -> None:
    job.feeds.require_for([thunk.name for thunk in executable.program.infeeds])
    if job.check and executable.program.infeeds:
        job.feeds.require_whole()


def _execute(executable: Executable, job: JobOptions) -> tuple[Execution, Outfeed | None]:
    """Return what the steps gave, and what took their outfeeds."""
    if job.inputs is not None and is_per_device(job.inputs):
        state = read_tiles(executable, job.inputs)
    else:
        entry = Entry.of_executable(executable)
        state = executable.put(job_inputs(entry.inputs, job))
    wanted = job.check or job.feeds.outfeed is not None
    outfeed = outfeed_for(job.feeds, executable, wanted=wanted)
    source = job.feeds.source()
    with executable.feeding(source, outfeed):
        feedback = Entry.of_executable(executable).feedback
        done = execute_steps(executable, state, job.steps, feedback)
    note_what_is_left(source)
    return done, outfeed


def _result(
    executable: Executable, done: Execution, outfeed: Outfeed | None, job: JobOptions
) -> JobResult:
    """Whole outputs on the first process, where anybody wants them; tiles are written by those who have them."""
    if job.outputs is not None and is_per_device(job.outputs):
        write_tiles(executable, done.outputs, job.outputs)
    whole = executable.get(done.outputs) if job.needs_global_outputs else []
    write_outfeed(job.feeds, outfeed, writes=executable.devices.start == 0)
    return JobResult(whole, done.seconds, outfeeds=leaves_of(outfeed))


def _conclude(options: argparse.Namespace, program: Program, result: JobResult, where: str) -> int:
    """Check, write and print; the exit code."""
    note_hosted(program.executable)
    job = _job_options(options)
    entry = Entry.of_executable(program.executable)
    expected = _expected(options, program)
    described = program.module or program.executable.module
    result = conclude(result, expected, job, output_paths(described, entry.feedback))
    if not result.ok:
        result = _judged(
            options, program.module, program.executable.num_devices, entry, result, expected
        )
    module = program.module if job.check and not result.ok else None
    if module is not None:
        compiling = compile_options(options)
        found = search(
            module,
            program.executable.num_devices,
            list(job_inputs(entry.inputs, job)),
            # What is looked at takes memory that the program does not.
            replace(compiling, memory_limit=None),
            partitioned=is_partitioned(module, compiling),
            seconds=options.timeout,
            feeds=job.feeds,
        )
        notes = (*result.notes, found.note) if found.note else result.notes
        result = replace(result, first_diverging_op=found.op, notes=notes)
    return _report(options, entry, result, where)


def _judged(
    options: argparse.Namespace,
    module: HloModule | None,
    devices: int | None,
    entry: Entry,
    result: JobResult,
    expected: Sequence[Expected],
) -> JobResult:
    """Return `result` with outputs excused that differ by amplified rounding, unless --atol or --rtol says how far."""
    job = _job_options(options)
    if job.atol is not None or job.rtol is not None:
        return result
    if module is None:
        note = "whether rounding explains it cannot be told from a saved executable, only from its module"
        return replace(result, notes=(*result.notes, note))
    if job.inputs is not None and is_per_device(job.inputs):
        note = "whether rounding explains it is not told where inputs are files of tiles (%r)"
        return replace(result, notes=(*result.notes, note))
    partitioned = is_partitioned(module, compile_options(options))
    question = Question(
        reference_program(module, devices, partitioned=partitioned, seconds=options.timeout),
        list(job_inputs(entry.inputs, job)),
        entry.feedback,
        job.steps,
        excess=job.expect is not None,
        seconds=options.timeout,
        feeds=job.feeds,
    )
    line = TerminalLine()
    try:
        return explain_by_rounding(result, expected, question, line.show)
    finally:
        line.clear()


def _write_profile(options: argparse.Namespace, executable: Executable) -> None:
    if options.profile is None:
        return
    trace = collect_trace(executable, compile_options(options).machine)
    if trace is not None:
        write_file(options.profile, json.dumps(trace))


def _expected(options: argparse.Namespace, program: Program) -> list[Expected]:
    reference = feed = None
    job = _job_options(options)
    line = TerminalLine()
    module = program.module if job.check else None
    if module is not None:
        partitioned = is_partitioned(module, compile_options(options))
        meaning = reference_program(
            module,
            program.executable.num_devices,
            partitioned=partitioned,
            seconds=options.timeout,
            show=line.show,
        )
        reference, feed = meaning.evaluate, meaning.feed(job.feeds)
    entry = Entry.of_executable(program.executable)
    try:
        return expected_outputs(entry, job, reference, feed)
    finally:
        line.clear()


def _report(options: argparse.Namespace, entry: Entry, result: JobResult, where: str) -> int:
    if options.json:
        print(json.dumps(result.as_json(entry.outputs)))
    else:
        count, verbose = len(entry.outputs), options.verbose
        text = format_result(result, entry.name, count, where, verbose=verbose)
        print(printable(text))
    return 0 if result.ok else CheckFailed.exit_code


def _job_options(options: argparse.Namespace) -> JobOptions:
    return JobOptions(
        inputs=options.inputs,
        seed=options.seed or 0,
        seed_given=options.seed is not None,
        outputs=options.outputs,
        expect=options.expect,
        atol=options.atol,
        rtol=options.rtol,
        check=options.check,
        steps=options.steps,
        feeds=FeedOptions(options.infeed, options.outfeed),
    )
