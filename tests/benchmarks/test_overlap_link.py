"""Tests of the figures of overlap/link.py: what could be hidden, what dependencies leave, and what meets its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.overlap.link import line_of, main, possible, row_of, unmet

SECONDS = {"scheduled": 7.0, "waiting": 10.0, "traced": 7.0, "plain": 10.0}
HALVES = {"compute": 4.0, "communication": 6.0}


def least(what: str, idle: float) -> dict[str, Any]:
    """Predicted at half of what is measured."""
    return {"what": what, "idle": idle, "seconds": 0.0, "waiting": 5.0, "pieces": 8}


@pytest.mark.parametrize(
    ("bound", "seconds"),
    [
        (None, 6.0),
        (least("between nodes", 0.0), 6.0),
        (least("between nodes", 0.5), 7.0),
        (least("critical path", 0.5), 7.0),
        (least("compute", 0.5), 6.0),
        (least("compute", 2.0), 8.0),
    ],
)
def test_what_is_possible(bound: dict[str, Any] | None, seconds: float) -> None:
    assert possible(SECONDS | HALVES, bound) == seconds


def test_results_that_cannot_be_written_are_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(SystemExit, match="2"):
        main(["m.hlo", "--results", str(missing)])
    assert f"there is no folder {missing}" in capsys.readouterr().err


def found(steps: dict[str, float], bound: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "module": "m",
        "seconds": {name: [seconds] for name, seconds in steps.items()},
        "report": {
            "effective_overlap_s": steps["waiting"] - steps["scheduled"],
            "measured": {},
        },
        "clock_errors_s": [0.0],
        "clock_uncertainty_s": [0.0],
        "exchange": {},
        "least": bound,
    }


def test_shares_of_what_can_be_hidden() -> None:
    row = row_of(found(SECONDS | HALVES, least("between nodes", 0.5)), 1e9)
    assert (row["hidden_of_hideable"], row["hidden_of_possible"]) == (0.75, 1.0)
    assert row["hidden_of_plain"] == 1.0
    slower = row_of(found(SECONDS | HALVES | {"waiting": 12.0}, None), 1e9)
    assert (slower["hidden_of_possible"], slower["hidden_of_plain"]) == (5 / 6, 0.75)
    assert not unmet([row])
    assert unmet([row | {"hidden_of_possible": 0.75}]) == ["m at 1: hidden"]


def test_where_nothing_can_be_hidden_there_is_no_share() -> None:
    steps = SECONDS | {"scheduled": 10.0, "traced": 10.0, "compute": 10.0, "communication": 0.0}
    row = row_of(found(steps, None), 1e9)
    assert row["hidden_of_hideable"] is row["hidden_of_possible"] is row["hidden_of_plain"] is None
    assert "| - | - | - |" in line_of(row)
    assert not unmet([row])
