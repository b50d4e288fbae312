"""`spmd simulate --set` and `--sweep`: a machine with other figures, and one row for each of several."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.cli import main, simulate
from tests.paths import CASES

MLP = str(CASES / "mlp_dp2" / "module.hlo")
ON_DGX = ("--topology", "dgx-h100")


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_fields_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    varied = figures(capsys, MLP, "--topology", "dgx-h100{links=0.5}")
    assert figures(capsys, MLP, *ON_DGX, "--set", "links=0.5") == varied
    both = figures(capsys, MLP, *ON_DGX, "--set", "links=0.5", "--set", "levels.L2.bandwidth=2x")
    assert both["topology"] == "dgx-h100{links=0.5,levels.L2.bandwidth=2x}"
    assert both["compute_s"] < varied["compute_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "linx=1"), "dgx-h100 has no field 'linx'; did you mean links?"),
        (("--set", "links"), "expected NAME=VALUE, found 'links'"),
        (("--set", "spread=1"), "spread=1: spread must be from 0 to 0.1, found 1"),
        (("--sweep", "linx=1,2"), "dgx-h100 has no field 'linx'; did you mean links?"),
        (("--sweep", "links=1,,2"), "expected NAME=VALUE,VALUE,.., found 'links=1,,2'"),
        (("--sweep", "data-parallel=0"), "expected at least 1, found 0"),
        (("--sweep", "links=1", "--trace", "t.json"), "--trace is of one simulation"),
        (("--sweep", "links=1", "--durations", "d.json"), "--durations is of one simulation"),
        (
            ("--sweep", "links=1", "-o", "f.gif"),
            "expected a name that ends in .html or .svg or .png",
        ),
        (("-o", "f.svg"), "-o F.svg and F.png plot the rows of --sweep NAME=V,V,.."),
    ],
)
def test_what_cannot_be_varied(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", MLP, *ON_DGX, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["simulate", MLP, *ON_DGX, "--json", *arguments]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_row_of_a_sweep_is_the_simulation_at_its_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = rows(capsys, "--sweep", "links=1,0.01", "--set", "units=66")
    assert [(row["name"], row["value"]) for row in found] == [("links", "1"), ("links", "0.01")]
    for row in found:
        alone = figures(capsys, MLP, *ON_DGX, "--set", "units=66", "--set", f"links={row['value']}")
        for key in ("topology", "step_s", "exposed_s", "communication_s", "peak_bytes", "fits"):
            assert row[key] == alone[key]
    assert found[1]["communication_s"] > found[0]["communication_s"]


def test_a_sweep_over_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--sweep", "data-parallel=1,4")
    assert [row["devices"] for row in found] == [2, 8]
    alone = figures(capsys, MLP, *ON_DGX, "--data-parallel", "4")
    assert (found[1]["step_s"], found[1]["peak_bytes"]) == (alone["step_s"], alone["peak_bytes"])


def test_a_sweep_for_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("simulate", MLP, *ON_DGX, "--sweep", "program_bytes=1000,7e10")
    assert main([*arguments]) == 1
    title, head, first, second, *_ = capsys.readouterr().out.splitlines()
    assert title == "jit_step, one row for each value of program_bytes"
    columns = ["program_bytes", "devices", "step", "compute", "communication", "exposed", "memory"]
    assert head.split() == columns
    assert first.split()[:2] == ["1000", "2"]
    assert first.endswith("does not fit into 1 kB")
    assert second.split()[:2] == ["7e10", "2"]
    assert "fit" not in second


def test_a_terminal_shows_which_value_is_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["simulate", MLP, *ON_DGX, "--sweep", "links=1,0.5", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 2
    first, second, end = captured.err.split("\r\x1b[K")[1:]
    assert first.endswith("] links=1, 1 of 2")
    assert second.endswith("] links=0.5, 2 of 2")
    assert end == ""


def test_a_plot_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for name, begin in (("sweep.svg", b"<?xml"), ("sweep.png", b"\x89PNG")):
        file = tmp_path / name
        rows(capsys, "--sweep", "links=1,0.5", "-o", str(file))
        assert file.read_bytes().startswith(begin)


def test_without_matplotlib_a_plot_is_refused_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(simulate, "read_module")
    output = ("-o", str(tmp_path / "sweep.svg"))
    assert main(["simulate", MLP, *ON_DGX, "--sweep", "links=1,0.5", *output]) == 2
    assert 'pip install "spmd-executor[plot]"' in capsys.readouterr().err
