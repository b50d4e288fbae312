"""Compare each device's program before and after optimization, evaluated in lock step on a case's own inputs.

    python -m tests.differential.optimized CORPUS [--only REGEX] [--json FILE]

CORPUS is a folder of cases like those of tests/cases. A row shows devices, instructions that are no views before and
after, how many of the latter are peeled trips of loops, how many outputs differ in any bit, and the largest difference
over its tolerance, which follows from the logical program in double precision (tolerance.py). A case without stored
inputs runs on random ones. The exit code is 1 where a difference is larger than its tolerance, or where devices that
hold the same tile differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from collectives.passes.collective_permute_motion import CollectivePermuteMotion
from launch.data.inputs import read_inputs, seeded_inputs
from launch.options import CompileOptions
from launch.pipeline import optimization
from runtime.buffers.view_ops import is_view
from spmd.analysis.executions import executions
from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.passes.pipeline import AfterPass, Application, UnsettledWarning
from spmd.shape import ArrayShape, leaves
from spmd.verifier import verify
from tests.differential.equivalence import Comparison, compare, evaluate_on_devices

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Row:
    """Figures of one case.

    Attributes:
        before: Instructions that are no views, before optimization; ``after`` is the same after it.
        run_before: ``before``, counted as often as they run in a step; ``run_after`` likewise.
        peeled: The instructions that peeled trips of loops add to the program.
        body: The instructions of the largest body of a loop, before optimization.
        worst: The largest difference over its tolerance.
        problem: The reason for which the case fails without a difference.
    """

    name: str
    devices: int
    before: int
    after: int
    run_before: int
    run_after: int
    peeled: int
    body: int
    outputs: int
    inexact: int
    worst: float
    seconds: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and self.worst <= 1.0

    def __str__(self) -> str:
        end = f" {self.problem}" if self.problem else "" if self.ok else " DIFFERS"
        return (
            f"{self.name:28} {self.devices:7} {self.before:7} {self.after:6} {self.peeled:6} {self.outputs:7} {self.inexact:7} "
            f"{self.worst:10.2g} {self.seconds:7.1f}{end}"
        )


HEADER = (
    f"{'case':28} devices  before  after peeled outputs inexact {'error/tol':>10} {'seconds':>7}"
)


def measure(case: Path) -> Row:
    start = time.perf_counter()
    about = json.loads((case / "case.json").read_text(encoding="utf-8"))
    module, devices = spmd.load(case / "module.hlo"), about["num_partitions"]
    before = spmd.partition(module, devices)
    peeling = Peeling(before)
    after = optimized(before, peeling)
    inputs = inputs_of(case, module)
    dims = [x.dims for x in _arrays([module.entry.root.shape])]
    wanted, _ = evaluate_on_devices(before, devices, inputs, dims)
    got, disagreements = evaluate_on_devices(after, devices, inputs, dims)
    compared = compare(module, inputs, wanted, got, masked=True)
    return Row(
        case.name,
        devices,
        steps(before),
        steps(after),
        run_steps(before),
        run_steps(after),
        peeling.peeled,
        largest_body(before),
        len(wanted),
        compared.inexact,
        compared.worst,
        time.perf_counter() - start,
        "; ".join(disagreements),
    )


def check_optimized(module: HloModule, num_devices: int, inputs: Sequence[Array]) -> Comparison:
    """Check that each device computes the same before and after the pipelines.

    Every pass that changes something must leave a module that verifies, and all pipelines must come to rest.

    Raises:
        NotEquivalentError: The results differ.
    """
    before = spmd.partition(module, num_devices)
    after = optimized(before)
    dims = [x.dims for x in _arrays([module.entry.root.shape])]
    wanted, _ = evaluate_on_devices(before, num_devices, inputs, dims)
    got, disagreements = evaluate_on_devices(after, num_devices, inputs, dims)
    return compare(module, inputs, wanted, got).require(*disagreements)


class Peeling:
    """A callback after each pass on ``module`` that counts the instructions which peeling loops adds."""

    def __init__(self, module: HloModule) -> None:
        self.peeled = 0
        self._steps = steps(module)

    def __call__(self, done: Application) -> None:
        before, self._steps = self._steps, steps(done.module)
        if isinstance(done.step, CollectivePermuteMotion):
            self.peeled += self._steps - before


def optimized(module: HloModule, after_change: AfterPass | None = None) -> HloModule:
    """Return a copy after the pipelines, verified after each pass that changes it.

    Raises:
        UnsettledWarning: The pipelines do not come to rest.
    """
    copy = clone_module(module)

    def after(done: Application) -> None:
        if done.changed:
            verify(done.module)
            if after_change is not None:
                after_change(done)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsettledWarning)
        for pipeline in optimization(CompileOptions()):
            pipeline.run(copy, after)
    return copy


def inputs_of(case: Path, module: HloModule) -> list[Array]:
    shapes = _arrays(p.shape for p in module.entry.parameters)
    stored = case / "inputs.npz"
    return read_inputs(stored, shapes) if stored.exists() else seeded_inputs(0, shapes)


def _arrays(shapes: Any) -> list[ArrayShape]:
    return [leaf for s in shapes for _, leaf in leaves(s) if isinstance(leaf, ArrayShape)]


def steps(module: HloModule) -> int:
    """Return the number of instructions that are no views of memory.

    Layout assignment makes more instructions views where that saves copies.
    """
    return sum(map(_steps_of, module.computations))


def run_steps(module: HloModule) -> int:
    """Return the number of these instructions that run in a step, counting the trips of loops."""
    return sum(times * _steps_of(each) for each, times in executions(module).items())


def largest_body(module: HloModule) -> int:
    """Return the number of these instructions in the largest body of a loop."""
    loops = (x for x in module.all_instructions() if x.opcode is Opcode.WHILE)
    return max((_steps_of(loop.while_body) for loop in loops), default=0)


def _steps_of(computation: HloComputation) -> int:
    return sum(not is_view(instruction) for instruction in computation.instructions)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="a regular expression that names must match")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    print(HEADER)
    rows = []
    for about in sorted(options.corpus.glob("*/case.json")):
        if re.search(options.only, about.parent.name):
            rows.append(measure(about.parent))
            print(rows[-1], flush=True)
    failed = [row.name for row in rows if not row.ok]
    worst = max((row.worst for row in rows), default=0.0)
    print(f"{len(rows)} cases, {len(failed)} differ, largest error over tolerance {worst:.2g}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
