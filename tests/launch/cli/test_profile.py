"""`spmd profile`: in one process, on a saved trace, and on MPI ranks of which one is late."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mpi_available import needs_mpi

from benchmarks.faults.program import LATE
from launch.cli import main, profile
from launch.mpirun import MpiJob
from launch.report.overlap import read
from launch.report.overlap.read import TraceError
from tests.paths import ROOT

MODULE = str(ROOT / "tests" / "cases" / "mlp_dp2" / "module.hlo")
#: Compiled for nodes of one device each, so that it has starts and dones.
OVERLAPPING = ("--machine", "tcp-cluster{node=1}")


def profiled(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["profile", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_the_keys_that_scripts_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = profiled(capsys, MODULE, "--steps", "3", *OVERLAPPING)
    assert {"measured", "predicted", "effective_overlap_s", "collectives"} <= set(found)
    assert {"step_s", "compute_s", "communication_s", "exposed_s"} <= set(found["measured"])
    assert set(found["measured"]) & set(found["predicted"]) >= {"step_s", "compute_s", "exposed_s"}
    assert found["devices"] == 2
    assert found["collectives"]
    for one in found["collectives"]:
        assert {"op", "kind", "bytes", "group_size", "time_s", "exposed_s", "why"} <= set(one)
        assert sum(one["causes"].values()) == pytest.approx(one["exposed_s"], abs=1e-8)
        assert one["predicted"]["time_s"] > 0
        assert one["group_size"] == 2
    measured = found["measured"]
    gained = measured["reference_step_s"] - measured["step_s"]
    assert found["effective_overlap_s"] + measured["elsewhere_s"] == pytest.approx(gained)
    assert found["clock_uncertainty_s"] == [0.0, 0.0]
    assert sum(one["share"] for one in found["critical_path"]) == pytest.approx(1.0)


def test_report_on_a_saved_trace_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, page = str(tmp_path / "t.json"), tmp_path / "t.html"
    measured = profiled(capsys, MODULE, "--steps", "2", "--trace", trace, "--html", str(page))
    assert profiled(capsys, "--timeline", trace) == measured
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert main(["profile", "--timeline", trace, "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("jit_step on 2 devices, compiled for ")
    assert "critical path of step" in text
    assert "1 collective, " in text


def test_trace_of_a_run_has_no_reference_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(tmp_path / "t.json")
    assert main(["run", MODULE, "--steps", "3", "--profile", trace]) == 0
    capsys.readouterr()
    found = profiled(capsys, "--timeline", trace)
    assert found["measured"]["reference_step_s"] is None
    assert "no reference steps" in found["notes"][0]


def test_a_saved_program_is_reported_for_the_machine_it_was_compiled_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither this machine nor the one that is asked for now counts."""
    saved = str(tmp_path / "m.spmdx")
    assert main(["compile", MODULE, "-o", saved, *OVERLAPPING]) == 0
    capsys.readouterr()
    for asked in ((), ("--machine", "dgx-h100")):
        found = profiled(capsys, saved, "--steps", "2", *asked)
        assert found["topology"] == found["predicted"]["topology"] == "tcp-cluster{node=1}"


def test_what_is_no_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--timeline", str(tmp_path / "none.json")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    assert main(["profile", "--timeline", MODULE]) == 2
    assert "no trace in JSON" in capsys.readouterr().err


def test_no_more_of_a_file_is_read_than_a_trace_may_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (profile, read):
        monkeypatch.setattr(module, "MAX_BYTES", 1000)
    assert main(["profile", "--timeline", "/dev/zero"]) == 2
    assert "/dev/zero: 1001 bytes, more than 1000 for a trace" in capsys.readouterr().err


def test_a_timeline_that_is_too_long_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """A file with a hole: nothing on the disk, zeros where it is read."""
    assert read.MAX_BYTES == 256 << 20
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.truncate(read.MAX_BYTES + 1)
    with pytest.raises(TraceError, match="268435457 bytes, more than 268435456 for a trace"):
        read.read_trace(path.read_bytes(), str(path))


def test_names_in_a_timeline_do_not_garble_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    profiled(capsys, MODULE, "--steps", "2", "--trace", str(path))
    text = path.read_text()
    (name,) = json.loads(text)["otherData"]["collectives"]
    garbled = text.replace(f'"{name}"', r'"\u001b[2Jall\nred\u202e"')
    garbled = garbled.replace('"module": "', r'"module": "\u009b2J')
    path.write_text(garbled)
    assert main(["profile", "--timeline", str(path)]) == 0
    out = capsys.readouterr().out
    assert r"\x9b2Jjit_step on 2 devices" in out
    assert r"\x1b[2Jall\nred\u202e" in out
    assert all(line.isprintable() for line in out.split("\n"))
    path.write_text(garbled.replace('"ph": "X"', '"ph": "x"'))
    assert main(["profile", "--timeline", str(path)]) == 2
    path.rename(tmp_path / "\x1b[2J")
    assert main(["profile", "--timeline", str(tmp_path / "\x1b[2J")]) == 2
    assert r"\x1b[2J: no step was recorded" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), (MODULE, "--timeline", "t.json")])
def test_either_a_module_or_a_timeline(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == 2
    assert "one of the two" in capsys.readouterr().err


@needs_mpi
@pytest.mark.parametrize(
    ("place", "because"),
    [("0", r"its \S+ takes"), ("between", "it begins its step")],
    ids=["in its step", "before its step"],
)
def test_rank_that_is_late_is_named(place: str, because: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    program = ROOT / "benchmarks" / "faults" / "program.py"
    command = (
        *("sh", "-c", f'exec "$@" > {out}.$OMPI_COMM_WORLD_RANK$PMI_RANK', "sh"),
        *(sys.executable, str(program), "1", place, "1", "late"),
        *("profile", MODULE, "--steps", "3", "--json"),
    )
    job = MpiJob(2, command)
    assert job.run() == 0
    found = json.loads(Path(f"{out}.0").read_text())
    assert found["per_device"][1]["awaited_s"] > 0.8 * LATE
    one = max(found["collectives"], key=lambda one: float(one["exposed_s"]))
    assert max(one["late"], key=lambda device: float(one["late"][device])) == "1"
    assert one["causes"]["late peer"] > 0.4 * LATE
    told = rf"late peer: device 1 arrives ([\d.]+) ms later than device 0: {because} ([\d.]+) ms"
    said = re.match(told, one["why"])
    assert said is not None, one["why"]
    assert all(float(ms) > 0.9e3 * LATE for ms in said.groups())
