"""`spmd run` with the reference evaluator: alone, or to judge what a program has computed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from launch.checks.divergence import search
from launch.checks.expect import Expected
from launch.checks.outputs import expected_outputs
from launch.checks.reference import reference_program
from launch.checks.verdicts import Question, explain_by_rounding
from launch.cli.program import Program
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module
from launch.cli.run_job import job_options, report_result
from launch.cli.terminal_line import TerminalLine
from launch.data.feed_files import infeed_names, write_outfeed
from launch.data.inputs import is_per_device
from launch.data.output_paths import output_paths
from launch.entry import Entry
from launch.job import JobOptions, JobResult, conclude, evaluate_steps, job_inputs
from launch.pipeline import is_partitioned
from runtime.compile import array_specs
from spmd.hlo import HloModule


def run_reference(options: argparse.Namespace, job: JobOptions) -> int:
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
        entry = Entry.of_boundaries(module, array_specs(module))
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
        result = judged(options, module, options.devices, entry, result, expected)
    return report_result(options, entry, result, "the reference evaluator")


def reference_outputs(
    options: argparse.Namespace, program: Program, module: HloModule
) -> list[Expected]:
    """Return the outputs that the evaluator gives for ``module``, of which ``program`` was compiled."""
    job = job_options(options)
    entry = Entry.of_executable(program.executable)
    line = TerminalLine()
    meaning = reference_program(
        module,
        program.executable.num_devices,
        partitioned=is_partitioned(module, compile_options(options)),
        seconds=options.timeout,
        show=line.show,
    )
    try:
        return expected_outputs(entry, job, meaning.evaluate, meaning.feed(job.feeds))
    finally:
        line.clear()


def explained(
    options: argparse.Namespace,
    program: Program,
    entry: Entry,
    result: JobResult,
    expected: Sequence[Expected],
) -> JobResult:
    """Return `result`, in which outputs differ, with what rounding explains, and the op that differs first."""
    job = job_options(options)
    devices = program.executable.num_devices
    result = judged(options, program.module, devices, entry, result, expected)
    if program.module is None or not job.check or result.ok:
        return result
    compiling = compile_options(options)
    found = search(
        program.module,
        devices,
        list(job_inputs(entry.inputs, job)),
        # The outputs for the comparison take memory that the program itself does not need.
        replace(compiling, memory_limit=None),
        partitioned=is_partitioned(program.module, compiling),
        seconds=options.timeout,
        feeds=job.feeds,
    )
    notes = (*result.notes, found.note) if found.note else result.notes
    return replace(result, first_diverging_op=found.op, notes=notes)


def judged(
    options: argparse.Namespace,
    module: HloModule | None,
    devices: int | None,
    entry: Entry,
    result: JobResult,
    expected: Sequence[Expected],
) -> JobResult:
    """Return `result` with outputs excused that differ by amplified rounding, unless --atol or --rtol says how far."""
    job = job_options(options)
    if job.atol is not None or job.rtol is not None:
        return result
    if module is None:
        note = "no check whether rounding explains the difference: it needs the module, not a saved executable"
        return replace(result, notes=(*result.notes, note))
    if job.inputs is not None and is_per_device(job.inputs):
        note = "no check whether rounding explains the difference: it needs global inputs, not files of tiles (%r)"
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
