"""One run of a module on any executor: its options, its results, and whether these are as expected."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import spmd
from launch.cli import UsageError
from launch.data.feed_files import NO_FILES, FeedOptions, GivingFeed
from launch.data.inputs import (
    Array,
    SeededInputs,
    file_digest,
    is_per_device,
    read_inputs,
    write_arrays,
)
from runtime.executable import Executable
from spmd.errors import SpmdError
from spmd.host_feed import flat_item
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from launch.checks.expect import Expected, OutputCheck
    from launch.checks.reference import Reference


class WorldSizeError(SpmdError):
    """A module for another number of devices than there are ranks."""


@dataclass(frozen=True)
class JobOptions:
    """Inputs of a job and the use of its outputs. If ``inputs`` and ``seed`` are both given, the file is used.

    seed_given: the user set the seed.
    feeds: files that infeeds read and outfeeds write.
    """

    inputs: Path | None = None
    seed: int = 0
    seed_given: bool = False
    outputs: Path | None = None
    expect: Path | None = None
    atol: float | None = None
    rtol: float | None = None
    check: bool = False
    steps: int = 1
    feeds: FeedOptions = NO_FILES

    def require_inputs(self) -> None:
        """Raise UsageError if outputs are expected but inputs are not stated: values from the default
        seed never agree.
        """
        if self.expect is not None and self.inputs is None and not self.seed_given:
            raise UsageError(
                f"--expect {self.expect} needs the inputs that gave these outputs: --inputs F.npz, or --seed S if they "
                "are from a seed"
            )

    @property
    def needs_global_outputs(self) -> bool:
        """Return whether global outputs are needed; otherwise no process needs to hold one."""
        written = self.outputs is not None and not is_per_device(self.outputs)
        return written or self.check or self.expect is not None


@dataclass(frozen=True)
class JobResult:
    """Result of a job.

    outputs: of the last step; empty if they are not needed.
    seconds: of each step.
    checks: one for each output, if requested.
    first_diverging_op: the first operation that differs from the reference evaluator, if it was found (divergence.py).
    notes: lines on the comparison.
    outfeeds: arrays that outfeeds wrote, in all steps.
    """

    outputs: list[Array]
    seconds: list[float]
    checks: list[OutputCheck] = field(default_factory=list)
    first_diverging_op: str | None = None
    notes: tuple[str, ...] = ()
    outfeeds: list[Array] = field(default_factory=list)

    @property
    def values(self) -> list[Array]:
        """All that is compared: the outputs, then what outfeeds gave."""
        return [*self.outputs, *self.outfeeds]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_json(self, shapes: Sequence[ArrayShape]) -> dict[str, Any]:
        """Return the result as JSON. ``shapes``: those of the outputs."""
        unchecked = [
            {"name": f"out{k}", "shape": list(shape.dims), "dtype": shape.element_type.value}
            for k, shape in enumerate(shapes)
        ]
        return {
            "ok": self.ok,
            "outputs": [check.as_json() for check in self.checks] or unchecked,
            "first_diverging_op": self.first_diverging_op,
            "notes": list(self.notes),
            "step_ms": step_milliseconds(self.seconds),
        }


def step_milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum in milliseconds."""
    return {
        "median": _median(seconds) * 1e3,
        "min": min(seconds) * 1e3,
        "max": max(seconds) * 1e3,
    }


def _median(seconds: Sequence[float]) -> float:
    """Return the median; NumPy's imports masked arrays, Python's fractions."""
    ordered = sorted(seconds)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def job_inputs(shapes: Sequence[ArrayShape], options: JobOptions) -> Sequence[Array]:
    """Return global arrays: mapped from the file, or made from the seed, each on demand."""
    if options.inputs is not None:
        return read_inputs(options.inputs, shapes)
    return SeededInputs(options.seed, shapes)


def inputs_digest(options: JobOptions) -> str:
    """Return a text that differs if two ranks have different inputs. It does not read a file's arrays."""
    if options.inputs is None:
        return f"seed {options.seed}"
    if is_per_device(options.inputs):
        return str(options.inputs)
    return file_digest(options.inputs)


def versions() -> dict[str, str]:
    """Return the versions that must be equal on the machines of all ranks."""
    return {
        "spmd-executor version": spmd.__version__,
        "NumPy version": np.__version__,
    }


def require_world(devices: int, ranks: int, option: str = "") -> None:
    """Raise WorldSizeError unless each rank is one of the program's devices.

    ``option``: how to ask for another number of devices, empty if the module itself fixes it.
    """
    if devices != ranks:
        advice = f", or use {option}{ranks}" if option else ""
        what = "device" if devices == 1 else "devices"
        raise WorldSizeError(
            f"the module is for {devices} {what}, but the job has {ranks} ranks: start {devices}{advice}"
        )


def require_saved_for(executable: Executable, devices: int) -> None:
    """Raise WorldSizeError unless the saved executable, whose number of devices is fixed, is for ``devices``."""
    if executable.num_devices != devices:
        raise WorldSizeError(
            f"the saved executable is for {executable.num_devices} devices, not for {devices}: "
            f"run it on {executable.num_devices}, or compile the module again"
        )


def evaluate_steps(
    reference: Reference,
    feedback: Mapping[int, int],
    inputs: Sequence[Array],
    steps: int,
    feed: GivingFeed | None = None,
) -> JobResult:
    """Evaluate ``reference`` ``steps`` times. Outputs become inputs of the next step as ``feedback`` says.

    ``feed``: the host's side of infeeds and outfeeds, from its beginning.
    """
    arrays = list(inputs)
    seconds = []
    outputs: list[Array] = []
    for _ in range(steps):
        start = time.perf_counter()
        outputs = reference(arrays, feed=feed)
        seconds.append(time.perf_counter() - start)
        for output, argument in feedback.items():
            arrays[argument] = outputs[output]
    outfeeds = [] if feed is None else flat_item(feed.given)
    return JobResult(outputs, seconds, outfeeds=outfeeds)


def conclude(
    result: JobResult,
    expected: Sequence[Expected],
    options: JobOptions,
    paths: Sequence[str] = (),
) -> JobResult:
    """Write the outputs where wanted and check them. `paths`: the outputs' places in the user's program."""
    if options.outputs is not None and not is_per_device(options.outputs):
        write_arrays(options.outputs, "out", result.outputs)
    if not expected:
        return result
    # Deferred: a run whose outputs are not compared needs no comparison.
    from launch.checks.outputs import compare_outputs

    return replace(result, checks=compare_outputs(result, expected, options, paths))


def format_result(
    result: JobResult, name: str, num_outputs: int, where: str, *, verbose: bool = False
) -> str:
    """Return the report for a reader: the outputs that differ, the worst first, and a verdict.

    If all agree, the one nearest to its tolerance is shown. `verbose`: all outputs are.
    """
    median = step_milliseconds(result.seconds)["median"]
    time_text = f"{median:.1f} ms a step" if median >= 100.0 else f"{median:.3g} ms a step"
    if not result.checks:
        return f"{name}: {num_outputs} outputs on {where}, {time_text}"
    from launch.checks.outputs import format_checks, summary  # Deferred, as above.

    lines = format_checks(result.checks, verbose=verbose)
    if result.first_diverging_op is not None:
        lines.append(f"  first diverging op: {result.first_diverging_op}")
    lines += [f"  {note}" for note in result.notes]
    return "\n".join([*lines, f"{name}: {summary(result.checks)} on {where}, {time_text}"])
