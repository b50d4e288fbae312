"""Compare a program's outputs with JAX's: they agree, differ by rounding that the program amplifies, or differ.

The judgement is that of `spmd run --expect` (launch/checks/rounding.py): an output that is further from JAX's than its
tolerance is excused only where noise in every rounding moves the reference's own output about as far. The tolerance
takes in what JAX's own runs differ by, up to a hundredth of the output's largest element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from launch.checks.expect import (
    Expected,
    OutputCheck,
    check_output,
    default_tolerance,
    distance,
    widened,
)
from launch.checks.reference import reference_program
from launch.checks.verdicts import Question, explain_by_rounding
from launch.data.inputs import Array, read_arrays
from launch.entry import Entry
from launch.job import JobResult
from launch.options import CompileOptions
from launch.pipeline import is_partitioned
from spmd.hlo import HloModule
from spmd.shape import ArrayShape

#: Factor on what JAX's runs differ by, and the part of the largest element that it may excuse.
SPREAD, MOST_SPREAD = 8.0, 1e-2
#: Seconds after which no further evaluation with noise begins. One of ResNet-50 takes up to half a minute.
PATIENCE = 900.0
#: Runs of JAX, of which the first two are compared with and the others show what rounding does.
RUNS = ("sharded", "unsharded", "nudged", "rounded")


@dataclass(frozen=True)
class Ran:
    """A program with its inputs and the outputs that it gave."""

    module: HloModule
    entry: Entry
    devices: int
    inputs: Sequence[Array]
    outputs: Sequence[Array]


def judge(
    ran: Ran, jax_file: Path, paths: Sequence[str], names: Sequence[str] = RUNS
) -> tuple[list[OutputCheck], list[str]]:
    """Return a check of each output, and notes on how they were judged. `names`: the runs of JAX that there are."""
    runs = [read_arrays(jax_file, name, ran.entry.outputs) for name in names]
    pairs = [
        nearest(got, path, shape, each)
        for got, path, shape, *each in zip(
            ran.outputs, paths, ran.entry.outputs, *runs, strict=True
        )
    ]
    checks, expected = [check for check, _ in pairs], [one for _, one in pairs]
    result = JobResult(list(ran.outputs), [], checks)
    if not result.ok:
        result = explain_by_rounding(result, expected, question(ran), lambda _: None)
    return result.checks, list(result.notes)


def question(ran: Ran) -> Question:
    """JAX may have kept 16-bit results in f32, which XLA CPU does by default."""
    partitioned = is_partitioned(ran.module, CompileOptions())
    reference = reference_program(ran.module, ran.devices, partitioned=partitioned)
    return Question(reference, ran.inputs, {}, 1, excess=True, seconds=PATIENCE)


def nearest(
    got: Array, path: str, shape: ArrayShape, runs: Sequence[Array]
) -> tuple[OutputCheck, Expected]:
    """Compare an output with JAX's sharded and unsharded runs; the nearer one counts."""
    spread = spread_of(runs, shape)
    tried = []
    for want in runs[:2]:
        tolerance = default_tolerance(shape.element_type, want)
        tolerance = replace(tolerance, atol=tolerance.atol + allowed(spread, want, shape))
        expected = Expected(path, shape, want, tolerance)
        tried.append((check_output(got, expected), expected))
    return min(tried, key=lambda pair: pair[0].of_tolerance)


def spread_of(runs: Sequence[Array], shape: ArrayShape) -> float:
    """Return the largest difference of an element between two of JAX's runs."""
    wide: list[Any] = [widened(run, shape.element_type) for run in runs]
    apart = [float(distance(a, b).max(initial=0.0)) for a, b in combinations(wide, 2)]
    return max(apart)


def allowed(spread: float, want: Array, shape: ArrayShape) -> float:
    """Return what JAX's runs add to the tolerance of an output; nothing for whole numbers."""
    kind = shape.element_type
    if not (kind.is_floating or kind.is_complex):
        return 0.0
    sizes = np.abs(widened(want, kind))
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    return min(SPREAD * spread, MOST_SPREAD * largest)
