"""Tests of the zoo's results: verdicts, a summary, a page, and processes that die."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.zoo.jobs import Work, finish
from benchmarks.zoo.judge import nearest
from benchmarks.zoo.page import BEGIN, END, write_page
from benchmarks.zoo.results import Row, row_of, summary, verdict_of
from spmd.shape import ArrayShape, PrimitiveType

FIGURES = {
    "instructions": 5.0,
    "compile_s": 1.0,
    "xla_compile_s": 2.0,
    "step_ms": 0.1,
    "xla_step_ms": 1.0,
}


def check(verdict: str, of_tolerance: float, where: str = "") -> dict[str, object]:
    return {
        "name": f"[{of_tolerance:g}]",
        "verdict": verdict,
        "of_tolerance": of_tolerance,
        "amplified_at": where or None,
    }


def test_the_worst_verdict_is_a_programs() -> None:
    agreeing, rounding = check("agrees", 0.5), check("rounding", 3.0, "dot.1")
    assert verdict_of([agreeing]) == ("agrees", "")
    assert verdict_of([agreeing, rounding]) == (
        "rounding",
        "1 of 2 outputs, [3] 3 of tolerance, at dot.1",
    )
    assert verdict_of([check("differs", 2.0), rounding])[0] == "differs"


def test_jaxs_own_runs_excuse_a_hundredth_of_the_largest_element() -> None:
    shape = ArrayShape(PrimitiveType.F32, (2,))
    want = np.array([1.0, 0.5], np.float32)
    runs = [want, want + np.float32(0.1), want, want]
    assert nearest(want + np.float32(0.009), "x", shape, runs)[0].ok
    assert not nearest(want + np.float32(0.02), "x", shape, runs)[0].ok
    assert nearest(want + np.float32(0.1), "x", shape, runs)[0].ok


def test_rows_and_their_summary(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(json.dumps({"xla": {"step_ms": 40.0, "compile_s": 1.0}}))
    figures = {"step_ms": 10.0, "compile_s": 3.0, "peer_wire_bytes": None}
    (tmp_path / "ours.json").write_text(
        json.dumps({"figures": figures, "outputs": [check("agrees", 0.1)], "notes": []})
    )
    (tmp_path / "ranks.json").write_text(json.dumps({"crashed": "no end within 3 s"}))
    large = row_of(tmp_path, "muon", 8)
    assert not large.passed
    assert large.ranks == "crashed: no end within 3 s"
    rows = [Row("k_means", 4, "agrees", "", FIGURES, "same bits"), large]
    text = "\n".join(summary(rows))
    assert "1 of 2 pass" in text
    assert "8 MPI ranks: 1 crashed" in text
    assert (
        "step time over XLA CPU's (below 30 ms): geometric mean of 1 rows 0.100, largest 0.10 (k_means on 4)"
        in text
    )
    assert "(30 ms or more): geometric mean of 1 rows 0.250" in text
    assert (
        "compile time over XLA CPU's: geometric mean of 2 rows 1.225, largest 3.00 (muon on 8)"
        in text
    )


def test_a_page_has_a_line_for_each_program(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    rows = [
        Row("k_means", 4, "agrees", "", FIGURES, "same bits"),
        Row("k_means", 8, "refused", "no | such op", {}),
    ]
    write_page(page, rows)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    (line,) = [line for line in text.splitlines() if line.startswith("| k_means")]
    assert "| 0.10 / 1.00 |" in line
    assert "4: agrees; 8: refused: no / such op" in line


def test_others_go_on_behind_a_case_whose_process_dies(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for path in sys.argv[1:]:\n"
        "    assert 'bad' not in path, 'it is bad'\n"
        "    open(path, 'w').write('done')\n"
    )
    paths = [tmp_path / name for name in ("good", "bad", "better")]
    works = [Work(str(path), (path,), path.with_suffix(".failed")) for path in paths]
    finish([sys.executable, "-c", script], works, 60.0)
    assert [path.exists() for path in paths] == [True, False, True]
    assert "it is bad" in paths[1].with_suffix(".failed").read_text()


def test_a_case_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "late"
    work = Work(str(path), (path,), path.with_suffix(".failed"))
    finish([sys.executable, "-c", "import time; time.sleep(60)"], [work], 0.5)
    assert "no end within 0.5 s" in work.failed.read_text()
