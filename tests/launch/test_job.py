"""A run's bookkeeping: outputs fed back, checks, what ranks must have alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from launch.inputs import InputError, write_arrays
from launch.job import (
    JobOptions,
    WorldSizeError,
    aliased_outputs,
    conclude,
    expected_outputs,
    fingerprint,
    format_result,
    job_inputs,
    require_world,
    run_steps,
    step_milliseconds,
)
from spmd.evaluator.evaluator import evaluate
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


def test_aliased_outputs_take_their_inputs_place_in_the_next_step(counter: HloModule) -> None:
    assert aliased_outputs(counter) == {1: 0}
    inputs = [np.zeros(2, np.float32), np.array([1, 10], np.float32)]
    result = run_steps(lambda arrays: evaluate(counter, *arrays), counter, inputs, steps=3)
    assert result.outputs[1].tolist() == [3, 30]
    assert result.outputs[0].tolist() == [6, 60]
    assert len(result.seconds) == 3
    assert inputs[0].tolist() == [0, 0]


@pytest.mark.parametrize("steps", [1, 4])
def test_check_compares_with_the_reference_evaluator_after_as_many_steps(
    counter: HloModule, steps: int
) -> None:
    options = JobOptions(seed=5, check=True, steps=steps)
    inputs = job_inputs(counter, options)
    expected = expected_outputs(counter, inputs, options)
    right = run_steps(lambda arrays: evaluate(counter, *arrays), counter, inputs, steps)
    assert conclude(right, expected, options).ok
    wrong = run_steps(
        lambda arrays: [2 * a for a in evaluate(counter, *arrays)], counter, inputs, steps
    )
    checked = conclude(wrong, expected, options)
    assert not checked.ok
    assert "2 of 2 outputs differ" in format_result(checked, counter, "nothing")


def test_outputs_written_can_be_expected(counter: HloModule, tmp_path: Path) -> None:
    options = JobOptions(outputs=tmp_path / "o.npz", expect=tmp_path / "o.npz")
    inputs = job_inputs(counter, options)
    result = run_steps(lambda arrays: evaluate(counter, *arrays), counter, inputs, 1)
    assert conclude(result, [], options).checks == []
    checked = conclude(result, expected_outputs(counter, inputs, options), options)
    assert checked.ok
    assert [check.name for check in checked.checks] == ["out0", "out1"]
    assert checked.as_json(counter)["outputs"][1]["max_abs_diff"] == 0.0
    assert "all 2 outputs agree on the evaluator" in format_result(
        checked, counter, "the evaluator"
    )


def test_json_describes_outputs_without_checks(counter: HloModule) -> None:
    inputs = job_inputs(counter, JobOptions())
    result = run_steps(lambda arrays: evaluate(counter, *arrays), counter, inputs, 1)
    described = result.as_json(counter)
    assert described["ok"] is True
    assert described["outputs"][0] == {"name": "out0", "shape": [2], "dtype": "f32"}


def test_inputs_file_that_does_not_fit_is_refused(counter: HloModule, tmp_path: Path) -> None:
    write_arrays(tmp_path / "i.npz", "arg", [np.zeros(3, np.float32), np.zeros(2, np.float32)])
    with pytest.raises(InputError, match=r"arg0 is float32\[3\], the module takes f32\[2\]"):
        job_inputs(counter, JobOptions(inputs=tmp_path / "i.npz"))


def test_fingerprints_tell_modules_inputs_and_options_apart(counter: HloModule) -> None:
    inputs = job_inputs(counter, JobOptions())
    same = fingerprint(counter, inputs, "options")
    assert same == fingerprint(parse_module(COUNTER), job_inputs(counter, JobOptions()), "options")
    other = fingerprint(
        parse_module(COUNTER.replace("add(next", "multiply(next")), inputs, "options"
    )
    assert {key for key in same if same[key] != other[key]} == {"module"}
    other = fingerprint(counter, job_inputs(counter, JobOptions(seed=1)), "options")
    assert {key for key in same if same[key] != other[key]} == {"inputs"}
    other = fingerprint(counter, inputs, "more options")
    assert {key for key in same if same[key] != other[key]} == {"options"}


def test_a_wrong_world_says_both_numbers() -> None:
    require_world(4, 4)
    with pytest.raises(
        WorldSizeError, match="the module is for 4 devices, but the job has 3 ranks"
    ):
        require_world(4, 3)


def test_step_times_in_milliseconds() -> None:
    assert step_milliseconds([0.001, 0.004, 0.002]) == {"median": 2.0, "min": 1.0, "max": 4.0}
