"""`spmd run --check` and `--expect` on programs that amplify rounding: excused, unless an element is really wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launch.checks.verdicts
from launch.cli import main
from launch.data.inputs import Array, write_arrays
from runtime.executable import Executable
from spmd.errors import RunError
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module
from tests.amplifying_programs import ADAM, PROGRAMS

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`spmd run` of the Adam step on two devices with its own inputs: exit code and JSON."""
    path, inputs = tmp_path / "adam.hlo", tmp_path / "in.npz"
    path.write_text(ADAM)
    write_arrays(inputs, "arg", PROGRAMS["adam"].inputs)

    def command(*options: str) -> tuple[int, dict[str, Any]]:
        code = main(["run", str(path), "--inputs", str(inputs), "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return command


@pytest.fixture
def expected(tmp_path: Path) -> Path:
    """Outputs of the program with its sums in another order."""
    text = ADAM
    for old, new in PROGRAMS["adam"].other_order:
        text = text.replace(old, new)
    write_arrays(
        tmp_path / "out.npz", "out", evaluate(parse_module(text), *PROGRAMS["adam"].inputs)
    )
    return tmp_path / "out.npz"


def damage(monkeypatch: pytest.MonkeyPatch, element: int, amount: float) -> None:
    original = Executable.get

    def get(self: Executable, arrays: Any) -> list[Array]:
        outputs = [np.array(x) for x in original(self, arrays)]
        outputs[0][element] += amount
        return outputs

    monkeypatch.setattr(Executable, "get", get)


def test_check_excuses_amplified_rounding_and_names_what_amplifies_it(run: Run) -> None:
    code, result = run("--check")
    (output,) = result["outputs"]
    assert output["of_tolerance"] > 10
    assert (code, result["ok"], output["verdict"]) == (0, True, "rounding")
    assert output["amplified_at"] == "noise"
    assert result["first_diverging_op"] is None


def test_expect_excuses_it_too(run: Run, expected: Path) -> None:
    code, result = run("--expect", str(expected))
    assert (code, result["outputs"][0]["verdict"]) == (0, "rounding")


def test_a_tolerance_that_the_user_gives_is_the_last_word(run: Run, expected: Path) -> None:
    code, result = run("--expect", str(expected), "--atol", "1e-5")
    assert (code, result["outputs"][0]["verdict"]) == (1, "differs")


@pytest.mark.parametrize("option", ["--check", "--expect"])
@pytest.mark.parametrize(("element", "amount"), [(50, 1e-3), (3, 1.0)])
def test_one_wrong_element_is_found(
    run: Run,
    expected: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    element: int,
    amount: float,
) -> None:
    damage(monkeypatch, element, amount)
    code, result = run(option, *([str(expected)] if option == "--expect" else []))
    assert (code, result["outputs"][0]["verdict"]) == (1, "differs")


def test_a_judgement_that_fails_costs_no_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunError("no such op\nat all")

    monkeypatch.setattr(launch.checks.verdicts, "judge_rounding", fail)
    code, result = run("--check")
    assert code == 1
    assert any("failed: no such op" in note for note in result["notes"])
    assert "at all" not in str(result["notes"])
