"""Steps of `spmd run` once its program is there: inputs, the run, the comparison and the report."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from launch.cli.program import Program
from launch.data.feed_files import (
    FeedOptions,
    leaves_of,
    note_what_is_left,
    outfeed_for,
    write_outfeed,
)
from launch.data.inputs import is_per_device, read_tiles, write_tiles
from launch.entry import Entry
from launch.execution import Execution, execute_steps
from launch.job import (
    JobOptions,
    JobResult,
    conclude,
    format_result,
    job_inputs,
)
from launch.ranks.messages import printable
from runtime.arrays.host_feed import Outfeed
from runtime.executable import Executable
from spmd.errors import CheckFailed

if TYPE_CHECKING:
    from launch.checks.expect import Expected


def job_options(options: argparse.Namespace) -> JobOptions:
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


def require_feeds(executable: Executable, job: JobOptions) -> None:
    job.feeds.require_for([thunk.name for thunk in executable.program.infeeds])
    if job.check and executable.program.infeeds:
        job.feeds.require_unpartitioned()


def execute_job(executable: Executable, job: JobOptions) -> tuple[Execution, Outfeed | None]:
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


def job_result(
    executable: Executable, done: Execution, outfeed: Outfeed | None, job: JobOptions
) -> JobResult:
    """Return the result, with global outputs on the first process if they are needed. Each process writes its own
    tiles.
    """
    if job.outputs is not None and is_per_device(job.outputs):
        write_tiles(executable, done.outputs, job.outputs)
    global_outputs = executable.get(done.outputs) if job.needs_global_outputs else []
    write_outfeed(job.feeds, outfeed, writes=executable.devices.start == 0)
    return JobResult(global_outputs, done.seconds, outfeeds=leaves_of(outfeed))


def conclude_job(
    options: argparse.Namespace, program: Program, result: JobResult, where: str
) -> int:
    """Check, write and print; the exit code."""
    if program.executable.kernel_report is not None:
        from launch.target.backends import note_hosted  # only for programs on GPUs

        note_hosted(program.executable)
    job = job_options(options)
    entry = Entry.of_executable(program.executable)
    expected = expected_of(options, program)
    paths: list[str] = []
    if expected:
        # The module of a saved executable is read only if its outputs are compared.
        from launch.data.output_paths import output_paths

        paths = output_paths(program.module or program.executable.module, entry.feedback)
    result = conclude(result, expected, job, paths)
    if not result.ok:
        # The import is deferred because it brings the evaluator.
        from launch.cli.run_reference import explained

        result = explained(options, program, entry, result, expected)
    return report_result(options, entry, result, where)


def write_profile(options: argparse.Namespace, executable: Executable) -> None:
    if options.profile is None:
        return
    from launch.cli.programs.compile_options import compile_options
    from launch.report.trace import collect_trace
    from spmd.output_file import write_file

    trace = collect_trace(executable, compile_options(options).machine)
    if trace is not None:
        write_file(options.profile, json.dumps(trace))


def expected_of(options: argparse.Namespace, program: Program) -> list[Expected]:
    """Return the outputs that the run must give; an empty list if they are not compared."""
    job = job_options(options)
    if job.check and program.module is not None:
        from launch.cli.run_reference import reference_outputs

        return reference_outputs(options, program, program.module)
    if job.expect is None and not job.check:
        return []
    from launch.checks.outputs import expected_outputs  # deferred, as above

    return expected_outputs(Entry.of_executable(program.executable), job, None)


def report_result(options: argparse.Namespace, entry: Entry, result: JobResult, where: str) -> int:
    if options.json:
        print(json.dumps(result.as_json(entry.outputs)))
    else:
        count, verbose = len(entry.outputs), options.verbose
        text = format_result(result, entry.name, count, where, verbose=verbose)
        print(printable(text))
    return 0 if result.ok else CheckFailed.exit_code
