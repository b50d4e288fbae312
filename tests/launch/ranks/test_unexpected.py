"""Exit code 1 says that a check failed and nothing else: defects, full disks and launchers that fail exit with 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import launch.cli.run as run_command
from launch.cli import launch as launch_command
from launch.cli import main
from launch.mpirun import MpiJob
from launch.ranks.rank_environment import CHECK_FAILED_ON_RANK, exit_code_of_rank
from launch.ranks.unexpected import describe_system_failure, describe_unexpected
from tests.paths import CASES

MODULE = str(CASES / "mlp_dp2" / "module.hlo")


def fails_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(run_command, "run", fail)
    return main(["run", MODULE])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            KeyError("x"),
            "spmd: error: internal error: KeyError: 'x' (SPMD_TRACEBACK=1 prints where)\n",
        ),
        (
            ValueError("one\ntwo"),
            "spmd: error: internal error: ValueError: one (SPMD_TRACEBACK=1 prints where)\n",
        ),
        (MemoryError("4 TiB"), "spmd: error: out of memory (4 TiB): 5 bytes are available\n"),
        (OSError(28, "No space left", "o.npz"), "spmd: error: o.npz: No space left\n"),
    ],
)
def test_what_nothing_foresaw_is_one_line_and_exit_code_three(
    error: Exception,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("launch.cli._discard_output", lambda: None)
    monkeypatch.setattr("spmd.limits.available_bytes", lambda: 5)
    assert fails_with(error, monkeypatch) == 3
    assert capfd.readouterr().err == line


def test_the_traceback_is_there_for_who_asks() -> None:
    with pytest.raises(KeyError) as caught:
        {}["x"]
    text = describe_unexpected(caught.value, {"SPMD_TRACEBACK": "1"})
    assert text.startswith("internal error: KeyError: 'x'\nTraceback")
    assert "test_unexpected.py" in text
    assert "test_unexpected.py" not in describe_unexpected(caught.value, {})
    assert describe_system_failure(caught.value) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("errors_too", [False, True])
def test_output_that_cannot_be_written_exits_with_three(errors_too: bool) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            (sys.executable, "-m", "launch", "stats", MODULE),
            stdout=full,
            stderr=full if errors_too else subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    if not errors_too:
        assert done.stderr == "spmd: error: No space left on device\n"


@pytest.mark.parametrize(
    ("launcher", "own"), [(0, 0), (1, 3), (2, 2), (3, 3), (CHECK_FAILED_ON_RANK, 1), (213, 3)]
)
def test_the_launchers_own_failure_is_no_failed_check(
    launcher: int, own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MpiJob, "run", lambda _: launcher)
    monkeypatch.setattr(launch_command, "_job", lambda _: MpiJob(2, ("true",)))
    assert main(["launch", "-n", "2", "--", "run", MODULE]) == own


def test_a_rank_says_so_to_spmd_launch_alone() -> None:
    assert exit_code_of_rank(1, {}) == 1
    assert exit_code_of_rank(1, {"SPMD_LAUNCHED": "1"}) == CHECK_FAILED_ON_RANK
    assert [exit_code_of_rank(code, {"SPMD_LAUNCHED": "1"}) for code in (0, 2, 3)] == [0, 2, 3]


def test_a_launcher_without_a_home_gets_one() -> None:
    assert Path(MpiJob(2, ("true",)).environment({})["HOME"]).is_absolute()
    assert MpiJob(2, ("true",)).environment({"HOME": "/h"})["HOME"] == "/h"
    job = MpiJob(2, ("true",), variables=(("SPMD_LAUNCHED", "1"),))
    assert job.environment(os.environ)["SPMD_LAUNCHED"] == "1"
