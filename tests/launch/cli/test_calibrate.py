"""`spmd calibrate`: a description that is read back, where compilations find it; what is there already is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.calibrated import calibration_path, machine_here
from launch.cli import calibrate_rates, main
from spmd.machine.named import machine_named
from spmd.machine.reader import MachineError, read_machine
from spmd.shape import PrimitiveType


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Small measurements; the user's folder of settings is a new one."""
    for name, value in {
        "BUDGET": 0.0,
        "LEAST_TRIES": 1,
        "ELEMENTS": 1 << 16,
        "GEMM_SIZES": (16,),
        "WORKING_SETS": (1 << 14, 1 << 16),
        "THUNKS": (2, 6),
        "STEPS": 2,
        "MANY": 1 << 12,
    }.items():
        monkeypatch.setattr(calibrate_rates, name, value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_calibration_is_found(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine_here() is machine_named()
    assert main(["calibrate"]) == 0
    assert str(calibration_path()) in capsys.readouterr().out
    machine = machine_here()
    assert machine.name == f"calibrated-{machine.digest[:8]}"
    assert machine_named(machine.name) == machine
    assert machine.rates_of(PrimitiveType.F32).simple > 1e6
    assert machine.levels[0].size == 1 << 14
    assert calibration_path().is_relative_to(quick)


def test_json_is_the_description_and_nothing_else(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = quick / "m.json"
    assert main(["calibrate", "--json", "-o", str(path)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(path.read_text())
    assert read_machine(path.read_bytes(), "m.json").kind == "cpu"
    assert not calibration_path().exists()


def test_a_calibration_that_cannot_be_read_is_an_error(quick: Path) -> None:
    calibration_path().parent.mkdir()
    calibration_path().write_text('{"format": 7}')
    with pytest.raises(MachineError, match="format 7; this version reads 1"):
        machine_here()


def test_no_file_can_be_written_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["calibrate", "-o", str(tmp_path / "no" / "m.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_relative_folder_of_settings_is_ignored() -> None:
    assert calibration_path({"XDG_CONFIG_HOME": "here"}).is_relative_to(Path.home())
