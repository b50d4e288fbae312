"""A run's bookkeeping: outputs fed back, checks, what ranks must have alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from launch.checks.expect import OutputCheck, Verdict
from launch.checks.outputs import expected_outputs
from launch.checks.reference import reference_program
from launch.cli import UsageError
from launch.data.inputs import Array, InputError, write_arrays
from launch.entry import Entry
from launch.job import (
    JobOptions,
    JobResult,
    WorldSizeError,
    conclude,
    evaluate_steps,
    format_result,
    inputs_digest,
    job_inputs,
    require_world,
    step_milliseconds,
)
from spmd.analysis.aliased_outputs import aliased_outputs
from spmd.hlo import HloModule
from spmd.text.parser import parse_module

COUNTER = """
HloModule counter, input_output_alias={ {1}: (0, {}, may-alias) }

ENTRY main {
  count = f32[2] parameter(0)
  step = f32[2] parameter(1)
  next = f32[2] add(count, step)
  double = f32[2] add(next, next)
  ROOT result = (f32[2], f32[2]) tuple(double, next)
}
"""


@pytest.fixture
def counter() -> HloModule:
    return parse_module(COUNTER)


def evaluated(module: HloModule, inputs: Sequence[Array], steps: int) -> JobResult:
    reference = reference_program(module, None, partitioned=False).evaluate
    return evaluate_steps(reference, aliased_outputs(module), inputs, steps)


def test_aliased_outputs_take_their_inputs_place_in_the_next_step(counter: HloModule) -> None:
    assert aliased_outputs(counter) == {1: 0}
    inputs = [np.zeros(2, np.float32), np.array([1, 10], np.float32)]
    result = evaluated(counter, inputs, 3)
    assert result.outputs[1].tolist() == [3, 30]
    assert result.outputs[0].tolist() == [6, 60]
    assert len(result.seconds) == 3
    assert inputs[0].tolist() == [0, 0]


@pytest.mark.parametrize("steps", [1, 4])
def test_check_compares_with_the_reference_evaluator_after_as_many_steps(
    counter: HloModule, steps: int
) -> None:
    options = JobOptions(seed=5, check=True, steps=steps)
    entry = Entry.of_module(counter)
    expected = expected_outputs(
        entry, options, reference_program(counter, None, partitioned=False).evaluate
    )
    right = evaluated(counter, job_inputs(entry.inputs, options), steps)
    assert conclude(right, expected, options).ok
    wrong = JobResult([2 * array for array in right.outputs], right.seconds)
    checked = conclude(wrong, expected, options)
    assert not checked.ok
    assert "2 of 2 outputs differ" in format_result(checked, "counter", 2, "nothing")


def test_a_saved_executable_has_nothing_to_check_against(counter: HloModule) -> None:
    with pytest.raises(UsageError, match="--expect"):
        expected_outputs(Entry.of_module(counter), JobOptions(check=True), None)


def test_outputs_written_can_be_expected(counter: HloModule, tmp_path: Path) -> None:
    options = JobOptions(outputs=tmp_path / "o.npz", expect=tmp_path / "o.npz")
    entry = Entry.of_module(counter)
    result = evaluated(counter, job_inputs(entry.inputs, options), 1)
    assert conclude(result, [], options).checks == []
    checked = conclude(
        result,
        expected_outputs(
            entry, options, reference_program(counter, None, partitioned=False).evaluate
        ),
        options,
    )
    assert checked.ok
    assert [check.name for check in checked.checks] == ["out0", "out1"]
    assert checked.as_json(entry.outputs)["outputs"][1]["max_abs_diff"] == 0.0
    shown = format_result(checked, "counter", 2, "the evaluator")
    assert "all 2 outputs agree on the evaluator" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000412, "0.0412 ms"), (0.00123456, "1.23 ms"), (12.3456, "12345.6 ms")],
)
def test_a_step_time_has_three_digits(seconds: float, text: str) -> None:
    shown = format_result(JobResult([], [seconds]), "step", 1, "nothing")
    assert shown == f"step: 1 outputs on nothing, {text} a step"


def test_the_worst_output_is_listed_first_and_those_that_agree_are_counted() -> None:
    def check(name: str, verdict: Verdict, of_tolerance: float) -> OutputCheck:
        return OutputCheck(name, (2,), "f32", 1.0, 1.0, of_tolerance, verdict, "dot.1", "loss")

    checks = [
        check("out0", Verdict.AGREES, 0.5),
        check("out1", Verdict.DIFFERS, 2.0),
        check("out2", Verdict.ROUNDING, 9.0),
        check("out3", Verdict.DIFFERS, 5.0),
    ]
    lines = format_result(JobResult([], [0.001], checks), "step", 4, "nothing").splitlines()
    assert [line.split()[0] for line in lines] == ["out3", "out1", "out2", "1", "step:"]
    assert lines[0].split()[1] == "loss"
    assert "amplifies, at dot.1" in lines[2]
    assert "2 of 4 outputs differ, 1 differ by amplified rounding" in lines[-1]
    shown = format_result(JobResult([], [0.001], checks), "step", 4, "nothing", verbose=True)
    assert "out0" in shown


def test_json_describes_outputs_without_checks(counter: HloModule) -> None:
    described = JobResult([], [0.001]).as_json(Entry.of_module(counter).outputs)
    assert described["ok"] is True
    assert described["outputs"][0] == {"name": "out0", "shape": [2], "dtype": "f32"}


def test_inputs_file_that_does_not_fit_is_refused(counter: HloModule, tmp_path: Path) -> None:
    write_arrays(tmp_path / "i.npz", "arg", [np.zeros(3, np.float32), np.zeros(2, np.float32)])
    with pytest.raises(InputError, match=r"arg0 is float32\[3\], the module expects f32\[2\]"):
        job_inputs(Entry.of_module(counter).inputs, JobOptions(inputs=tmp_path / "i.npz"))


def test_digests_tell_inputs_apart(tmp_path: Path) -> None:
    for name, value in (("a", 0), ("b", 1), ("c", 0)):
        write_arrays(tmp_path / f"{name}.npz", "arg", [np.full(3, value, np.float32)])
    a, b, c = (inputs_digest(JobOptions(inputs=tmp_path / f"{x}.npz")) for x in "abc")
    assert a == c != b
    assert inputs_digest(JobOptions(seed=1)) != inputs_digest(JobOptions(seed=2))


def test_whole_outputs_are_gathered_only_where_somebody_looks() -> None:
    assert not JobOptions().needs_global_outputs
    assert not JobOptions(outputs=Path("out.%r.npz")).needs_global_outputs
    assert JobOptions(outputs=Path("out.npz")).needs_global_outputs
    assert JobOptions(outputs=Path("out.%r.npz"), check=True).needs_global_outputs


def test_a_wrong_world_says_both_numbers() -> None:
    require_world(4, 4)
    with pytest.raises(
        WorldSizeError, match=r"the module is for 4 devices, but the job has 3 ranks: start 4$"
    ):
        require_world(4, 3)
    with pytest.raises(WorldSizeError, match=r"for 1 device, .* start 1, or use --devices 3"):
        require_world(1, 3, "--devices ")


def test_step_times_in_milliseconds() -> None:
    assert step_milliseconds([0.001, 0.004, 0.002]) == {"median": 2.0, "min": 1.0, "max": 4.0}
