"""Counts of planned programs beside a peer's figures: bars that are kept, and one that is missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu import static
from tests.paths import CASES


def run(
    kernels: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str]:
    figures = {
        "devices": 2,
        "kernel_count": kernels,
        "libraries": {"__cublas$lt$matmul": 8},
        "touched_bytes": 1 << 20,
        "temp_bytes": (32 << 20) + (1 << 20),
        "collectives": {"all-reduce": {"count": 1, "bytes": 1 << 20}},
    }
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"figures": {"mlp_dp2": figures, "not_there": {}}}))
    monkeypatch.setattr("sys.argv", ["static", "--figures", str(file), "--corpus", str(CASES)])
    return static.main(), capsys.readouterr().out


def test_bars_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(400, tmp_path, monkeypatch, capsys)
    assert code == 0, said
    assert said.splitlines()[-1].startswith("geometric means: kernels 0.01, calls 1.00, bytes ")


def test_a_bar_that_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(2, tmp_path, monkeypatch, capsys)
    assert code == 1
    assert "MISSED mlp_dp2: kernels 2.00, at most 1.0" in said
