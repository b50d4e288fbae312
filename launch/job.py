"""One run of a module, whoever executes it: what is run on what, what comes out, and whether that is as expected."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from launch.expect import (
    Expected,
    OutputCheck,
    Tolerance,
    check_output,
    default_tolerance,
    read_expected,
)
from launch.inputs import (
    Array,
    entry_inputs,
    entry_outputs,
    read_inputs,
    seeded_inputs,
    write_arrays,
)
from spmd.errors import SpmdError
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule
from spmd.shape import ShapeIndex, leaves

RunOnce: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""Global inputs to global outputs, once."""


class WorldSizeError(SpmdError):
    """A module for another number of devices than there are ranks."""


@dataclass(frozen=True)
class JobOptions:
    """What to run on and what to do with the outputs; of ``inputs`` and ``seed``, the file goes first."""

    inputs: Path | None = None
    seed: int = 0
    outputs: Path | None = None
    expect: Path | None = None
    atol: float | None = None
    rtol: float | None = None
    check: bool = False
    steps: int = 1


@dataclass(frozen=True)
class JobResult:
    """Outputs of the last step, seconds of each, and one check per output where one was asked for.

    ``first_diverging_op``: where outputs differ from the reference evaluator's and it was found (divergence.py).
    """

    outputs: list[Array]
    seconds: list[float]
    checks: list[OutputCheck] = field(default_factory=list)
    first_diverging_op: str | None = None

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_json(self, module: HloModule) -> dict[str, Any]:
        shapes = entry_outputs(module)
        unchecked = [
            {"name": f"out{k}", "shape": list(shape.dims), "dtype": shape.element_type.value}
            for k, shape in enumerate(shapes)
        ]
        return {
            "ok": self.ok,
            "outputs": [check.as_json() for check in self.checks] or unchecked,
            "first_diverging_op": self.first_diverging_op,
            "step_ms": step_milliseconds(self.seconds),
        }


def step_milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        "median": float(np.median(seconds)) * 1e3,
        "min": min(seconds) * 1e3,
        "max": max(seconds) * 1e3,
    }


def job_inputs(module: HloModule, options: JobOptions) -> list[Array]:
    shapes = entry_inputs(module)
    if options.inputs is not None:
        return read_inputs(options.inputs, shapes)
    return seeded_inputs(options.seed, shapes)


def fingerprint(module: HloModule, inputs: Sequence[Array], options: Any) -> dict[str, str]:
    """What every rank has to have alike, by name."""
    data = hashlib.sha256()
    for array in inputs:
        data.update(array.tobytes())
    return {
        "module": hashlib.sha256(str(module).encode()).hexdigest()[:16],
        "inputs": data.hexdigest()[:16],
        "options": str(options),
        "NumPy version": np.__version__,
    }


def require_world(devices: int, ranks: int, option: str = "--devices ") -> None:
    """WorldSizeError unless each rank is one of the module's devices; ``option``: how to ask for another."""
    if devices != ranks:
        raise WorldSizeError(
            f"the module is for {devices} devices, but the job has {ranks} ranks: "
            f"start {devices}, or say {option}{ranks}"
        )


def run_steps(
    run_once: RunOnce, module: HloModule, inputs: Sequence[Array], steps: int
) -> JobResult:
    """Run ``steps`` times; outputs that alias an input take its place in the next step."""
    feedback = aliased_outputs(module)
    arrays = list(inputs)
    seconds = []
    outputs: list[Array] = []
    for _ in range(steps):
        start = time.perf_counter()
        outputs = run_once(arrays)
        seconds.append(time.perf_counter() - start)
        for output, argument in feedback.items():
            arrays[argument] = outputs[output]
    return JobResult(outputs, seconds)


def aliased_outputs(module: HloModule) -> dict[int, int]:
    """Output leaf number -> input leaf number, of the module's input-output aliases."""
    outputs = {index: k for k, (index, _) in enumerate(leaves(module.entry.root.shape))}
    inputs: dict[tuple[int, ShapeIndex], int] = {}
    for number, parameter in enumerate(module.entry.parameters):
        for index, _ in leaves(parameter.shape):
            inputs[number, index] = len(inputs)
    return {
        outputs[alias.output_index]: inputs[alias.parameter, alias.parameter_index]
        for alias in module.input_output_alias
    }


def expected_outputs(
    module: HloModule, inputs: Sequence[Array], options: JobOptions
) -> list[Expected]:
    """From the file, or from the reference evaluator; empty where neither was asked for."""
    shapes = entry_outputs(module)
    if options.expect is not None:
        return read_expected(options.expect, shapes, options.atol, options.rtol)
    if not options.check:
        return []
    values = run_steps(
        lambda arrays: evaluate(module, *arrays), module, inputs, options.steps
    ).outputs
    expected = []
    for k, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        default = default_tolerance(shape.element_type, value)
        tolerance = Tolerance(
            default.atol if options.atol is None else options.atol,
            default.rtol if options.rtol is None else options.rtol,
        )
        expected.append(Expected(f"out{k}", shape, value, tolerance))
    return expected


def conclude(result: JobResult, expected: Sequence[Expected], options: JobOptions) -> JobResult:
    """Write the outputs where wanted and check them."""
    if options.outputs is not None:
        write_arrays(options.outputs, "out", result.outputs)
    if not expected:
        return result
    checks = [check_output(got, want) for got, want in zip(result.outputs, expected, strict=True)]
    return JobResult(result.outputs, result.seconds, checks)


def format_result(result: JobResult, module: HloModule, where: str) -> str:
    """For a reader: each output's largest difference, and a verdict."""
    time_text = f"{step_milliseconds(result.seconds)['median']:.1f} ms a step"
    if not result.checks:
        return f"{module.name}: {len(result.outputs)} outputs on {where}, {time_text}"
    width = max(len(check.name) for check in result.checks)
    lines = [
        f"  {check.name:<{width}}  {check.dtype}[{','.join(map(str, check.shape))}]  "
        f"max |difference| {check.max_abs_diff:.3g}, {check.of_tolerance:.2g} of tolerance"
        f"{'' if check.ok else '  DIFFERS'}"
        for check in result.checks
    ]
    bad = sum(not check.ok for check in result.checks)
    verdict = (
        f"{bad} of {len(result.checks)} outputs differ"
        if bad
        else f"all {len(result.checks)} outputs agree"
    )
    if result.first_diverging_op is not None:
        lines.append(f"  first diverging op: {result.first_diverging_op}")
    return "\n".join([*lines, f"{module.name}: {verdict} on {where}, {time_text}"])
