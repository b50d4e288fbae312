"""`spmd explain`, and the warning that `spmd partition` and `spmd run` give."""

from __future__ import annotations

import json
from pathlib import Path

import explain_modules
import pytest

from launch.cli import main

#: Keys that every collective has.
KEYS = {"name", "kind", "bytes", "from", "to", "because", "source", "remedy"}


@pytest.fixture
def turned(tmp_path: Path) -> str:
    file = tmp_path / "turned.hlo"
    file.write_text(explain_modules.TURNED)
    return str(file)


def test_json_is_one_object_with_the_promised_keys(
    turned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", turned, "--devices", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"instructions", "collectives", "conflicts"} <= found.keys()
    assert {"name", "opcode", "shape", "sharding", "because"} <= found["instructions"][0].keys()
    (collective,) = found["collectives"]
    assert collective.keys() >= KEYS
    assert collective["from"] == "{devices=[1,4]<=[4]}"
    assert collective["remedy"]["instruction"] == "x"


def test_the_device_count_comes_from_the_module(
    turned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", turned]) == 0
    assert capsys.readouterr().out.startswith("turned on 4 devices")


def test_one_op(turned: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", turned, "--op", "y"]) == 0
    assert capsys.readouterr().out.startswith("y  tanh  f32[64,32@axis0]")


def test_an_unknown_op_is_bad_usage(turned: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", turned, "--op", "nobody"]) == 2
    assert "no instruction 'nobody'" in capsys.readouterr().err


def test_a_page_is_written_and_nothing_printed(
    turned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["explain", turned, "--html", str(page), "--remedies", "0"]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == ""


def test_a_program_of_one_device_is_refused(
    turned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "device.hlo"
    assert main(["partition", turned, "--devices", "4", "-o", str(file)]) == 0
    assert main(["explain", str(file)]) == 2
    assert "is partitioned already" in capsys.readouterr().err


@pytest.fixture
def dear_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of zero makes every reshard a costly one: real ones are too rare to test by."""
    monkeypatch.setattr("partitioner.partition.context.lower_bound", lambda *_: 0.0)


def test_strict_passes_where_every_reshard_is_near_its_bound(turned: str) -> None:
    assert main(["explain", turned, "--strict", "0", "--remedies", "0"]) == 0


@pytest.mark.usefixtures("dear_plans")
def test_strict_fails_naming_the_reshard(turned: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", turned, "--strict", "1000", "--remedies", "0"]) == 1
    assert "for result: y from {devices=[1,4]<=[4]}" in capsys.readouterr().err
    assert main(["explain", turned, "--strict", "1536", "--remedies", "0"]) == 0


@pytest.mark.usefixtures("dear_plans")
@pytest.mark.parametrize("command", ["partition", "run"])
def test_costly_reshards_are_warned_of_on_standard_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gathered.hlo"
    file.write_text(explain_modules.GATHERED)
    assert main([command, str(file), "--devices", "4"]) == 0
    captured = capsys.readouterr()
    assert "spmd: warning: costly reshard of y for whole" in captured.err
    assert "costly reshard" not in captured.out


def test_nothing_is_warned_of_where_reshards_are_near_their_bounds(
    turned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", turned, "--devices", "4"]) == 0
    assert capsys.readouterr().err == ""


def test_every_collective_that_is_listed_can_be_asked_for(
    turned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", turned, "--json"]) == 0
    (collective,) = json.loads(capsys.readouterr().out)["collectives"]
    assert main(["explain", turned, "--op", collective["name"]]) == 0
    said = capsys.readouterr().out
    assert said.split()[0] == collective["name"]
    assert f"for {collective['op']}" in said
    assert f"in HLO {collective['from']}" in said
    assert main(["explain", turned, "--op", collective["name"] + "x"]) == 2
    assert f"did you mean {collective['name']}" in capsys.readouterr().err
