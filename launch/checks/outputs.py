"""Comparison of a job's outputs with those that it must give, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.checks.expect import (
    Expected,
    OutputCheck,
    Tolerance,
    Verdict,
    check_output,
    default_tolerance,
    read_expected,
)
from launch.cli import UsageError
from launch.data.feed_files import GivingFeed
from launch.data.inputs import Array
from launch.entry import Entry
from launch.job import JobOptions, JobResult, evaluate_steps, job_inputs
from spmd.errors import CheckFailed
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from launch.checks.reference import Reference


def expected_outputs(
    entry: Entry,
    options: JobOptions,
    reference: Reference | None,
    feed: GivingFeed | None = None,
) -> list[Expected]:
    """Return the outputs from the file, or from ``reference`` with the data of its outfeeds; an empty list if neither
    is wanted.

    ``feed``: the host's side of infeeds and outfeeds of ``reference``.
    """
    if options.expect is not None:
        return read_expected(options.expect, entry.outputs, options.atol, options.rtol)
    if not options.check:
        return []
    if reference is None:
        raise UsageError(
            "--check needs the module before compilation, which a saved executable does not hold; "
            "use --expect F.npz to compare with outputs"
        )
    inputs = job_inputs(entry.inputs, options)
    found = evaluate_steps(reference, entry.feedback, inputs, options.steps, feed)
    named = [
        (f"out{k}", value, shape)
        for k, (value, shape) in enumerate(zip(found.outputs, entry.outputs, strict=True))
    ]
    named += [(f"outfeed{k}", value, _shape_of(value)) for k, value in enumerate(found.outfeeds)]
    expected = []
    for name, value, shape in named:
        default = default_tolerance(shape.element_type, value)
        tolerance = Tolerance(
            default.atol if options.atol is None else options.atol,
            default.rtol if options.rtol is None else options.rtol,
        )
        expected.append(Expected(name, shape, value, tolerance))
    return expected


def _shape_of(array: Array) -> ArrayShape:
    return ArrayShape(PrimitiveType.from_numpy(array.dtype), array.shape)


def compare_outputs(
    result: JobResult, expected: Sequence[Expected], options: JobOptions, paths: Sequence[str]
) -> list[OutputCheck]:
    """Return a check of each output, then of each array that outfeeds gave. `paths`: as of `conclude`."""
    values = result.values if len(expected) > len(result.outputs) else result.outputs
    if options.check and len(result.values) != len(expected):
        raise CheckFailed(
            f"the outfeeds produced {len(result.outfeeds)} arrays, but "
            f"{len(expected) - len(result.outputs)} in the reference evaluator"
        )
    checks = [check_output(got, want) for got, want in zip(values, expected, strict=True)]
    if len(paths) == len(result.outputs):
        paths = [*paths, *("" for _ in result.outfeeds)]
        checks = [replace(check, path=path) for check, path in zip(checks, paths, strict=False)]
    return checks


def format_checks(checks: Sequence[OutputCheck], *, verbose: bool) -> list[str]:
    """Return lines on the outputs that differ, the worst first, else on the one nearest to its tolerance."""
    shown = [check for check in checks if verbose or check.verdict is not Verdict.AGREES]
    shown = shown or [max(checks, key=lambda check: check.of_tolerance)]
    shown.sort(key=lambda check: (_SEVERITY.index(check.verdict), -check.of_tolerance))
    width = max((len(_title(check)) for check in shown), default=0)
    lines = [
        f"  {_title(check):<{width}}  {check.dtype}[{','.join(map(str, check.shape))}]  "
        f"max |difference| {check.max_abs_diff:.3g}, {check.of_tolerance:.2g} of tolerance"
        f"{_verdict_text(check)}"
        for check in shown
    ]
    agreeing = len(checks) - len(shown)
    if shown and agreeing:
        lines.append(f"  {agreeing} other outputs agree (--verbose lists them)")
    return lines


_SEVERITY = (Verdict.DIFFERS, Verdict.ROUNDING, Verdict.AGREES)


def _title(check: OutputCheck) -> str:
    """Return the output's number and name, and its path in the user's program if that is known."""
    return f"{check.name} {check.path}".strip()


def _verdict_text(check: OutputCheck) -> str:
    if check.verdict is Verdict.DIFFERS:
        return "  DIFFERS"
    if check.verdict is Verdict.AGREES:
        return ""
    where = f", at {check.amplified_at}" if check.amplified_at else ""
    return f"  differs by rounding that the program amplifies{where}"


def summary(checks: Sequence[OutputCheck]) -> str:
    """Count the verdicts in a phrase."""
    count = Counter(check.verdict for check in checks)
    rounding, bad = count[Verdict.ROUNDING], count[Verdict.DIFFERS]
    by_rounding = f"{rounding} differ by amplified rounding" if rounding else ""
    if bad:
        also = f", {by_rounding}" if by_rounding else ""
        return f"{bad} of {len(checks)} outputs differ{also}"
    if rounding:
        return f"{count[Verdict.AGREES]} of {len(checks)} outputs agree, {by_rounding}"
    return f"all {len(checks)} outputs agree"
