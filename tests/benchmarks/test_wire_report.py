"""The wire report: who chose, what counts, which bounds break, and the share of reduce-scatters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.partitioning.wire_report import (
    Chooser,
    Row,
    failures,
    format_table,
    measure,
    summarize,
)
from tests.paths import CASES

GOOD = Row("good", 4, Chooser.PARTITIONER, 80.0, 100.0, 20.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        (GOOD, []),
        (replace(GOOD, wire=106.0), ["wire 1.060"]),
        (replace(GOOD, flops=1.06), ["flops 1.06"]),
        (replace(GOOD, memory=1.11), ["memory 1.11"]),
        (replace(GOOD, chooser=Chooser.PROGRAM, wire=101.0), ["wire 1.010"]),
        (replace(GOOD, chooser=Chooser.PROGRAM, wire=100.0, memory=2.0), []),
        (replace(GOOD, wire=48.0, peer_wire=0.0), ["48 bytes where XLA sends none"]),
        (replace(GOOD, wire=0.0, peer_wire=0.0), []),
    ],
)
def test_bounds(row: Row, broken: list[str]) -> None:
    assert row.broken == broken
    found = failures([row], summarize([row]))
    assert [line for line in found if line.startswith("good")] == (
        [f"good: {', '.join(broken)}"] if broken else []
    )


def test_the_mean_is_over_what_counts_alone() -> None:
    dear = replace(GOOD, wire=1.0, flops=2.0)
    manual = replace(GOOD, chooser=Chooser.PROGRAM, wire=1.0)
    summary = summarize([GOOD, dear, manual])
    assert (summary.counted, summary.chosen) == (1, 2)
    assert summary.mean == pytest.approx(0.8)
    assert summary.mean_as_all_reduce == pytest.approx(1.0)
    assert summary.scatter_share == pytest.approx(1.0)
    worse = replace(GOOD, wire=95.0)
    assert failures([worse], summarize([worse])) == ["geometric mean 0.950 is above 0.9"]


def test_a_case_measured(tmp_path: Path) -> None:
    """XLA's own program beside the case would be needed for its flops: the case's module stands in for it."""
    case = tmp_path / "case"
    case.mkdir()
    text = (CASES / "mlp_dp2" / "module.hlo").read_text()
    (case / "module.hlo").write_text(text)
    (case / "peer.hlo").write_text(text)
    memory = {"argument_size_in_bytes": 10**9, "temp_size_in_bytes": 0}
    wire = {"total": {"wire_bytes": 23076.0}}
    about = {"num_partitions": 2, "peer": {"memory": memory, "collectives": wire}}
    (case / "case.json").write_text(json.dumps(about))
    row = measure(case)
    assert row.chooser is Chooser.PARTITIONER
    assert row.ratio == pytest.approx(1.0)
    assert row.flops < 1.0
    assert row.memory < 1.0
    assert "| case | 2 | partitioner | 23076 | 23076 | 1.000 |" in format_table([row])
