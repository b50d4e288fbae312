"""The `spmd` command under mpirun: what a user sees when it works and when it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi_available import needs_mpi

from launch.mpirun import MpiJob
from tests.paths import CASES

pytestmark = needs_mpi

#: Four devices: one rank of several differs.
CASE = CASES / "ring_attention4"
#: A case of two devices, with half as many processes to start, for tests of which any rank will do.
PAIR = CASES / "mlp_dp2"
SPMD = (sys.executable, "-m", "launch")
RUN = ("run", str(CASE / "module.hlo"), "--inputs", str(CASE / "inputs.npz"))
RUN_PAIR = ("run", str(PAIR / "module.hlo"), "--inputs", str(PAIR / "inputs.npz"))
EXPECT_PAIR = ("--expect", str(PAIR / "expected.npz"))


def run_command(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def run_ranks(*commands: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """One rank for each command (mpirun's colon form)."""
    job = MpiJob(1, commands[0])
    arguments = job.arguments()
    for command in commands[1:]:
        arguments += [":", "-n", "1", *command]
    environment = job.environment(os.environ)
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_a_case_agrees_with_jax_and_says_so_once() -> None:
    done = run_command(*SPMD, "launch", "-n", "2", "--", *RUN_PAIR, *EXPECT_PAIR)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all 7 outputs agree on 2 MPI ranks") == 1
    assert "max |difference|" in done.stdout


def test_json_is_one_object_from_one_rank() -> None:
    done = run_command(*SPMD, "launch", "-n", "2", "--", *RUN_PAIR, *EXPECT_PAIR, "--json")
    result = json.loads(done.stdout)
    assert result["ok"] is True
    assert [output["ok"] for output in result["outputs"]] == [True] * 7
    assert result["step_ms"]["min"] > 0


def test_values_that_differ_exit_with_one(tmp_path: Path) -> None:
    with np.load(PAIR / "expected.npz") as stored:
        np.savez(tmp_path / "e.npz", **{name: stored[name] + 1 for name in stored.files})
    expect = ("--expect", str(tmp_path / "e.npz"))
    done = run_command(*SPMD, "launch", "-n", "2", "--", *RUN_PAIR, *expect)
    assert done.returncode == 1
    assert "7 of 7 outputs differ" in done.stdout
    assert "DIFFERS" in done.stdout


def test_a_wrong_world_size_says_both_numbers() -> None:
    done = run_command(*SPMD, "launch", "-n", "3", "--", *RUN)
    assert done.returncode == 2
    assert done.stderr.count("the module is for 4 devices, but the job has 3 ranks") == 1
    assert "Traceback" not in done.stderr


def test_different_modules_on_two_ranks_name_the_rank(tmp_path: Path) -> None:
    text = (CASE / "module.hlo").read_text()
    other = tmp_path / "other.hlo"
    other.write_text(text.replace("HloModule jit_local", "HloModule jit_other"))
    assert other.read_text() != text
    mine = (*SPMD, *RUN)
    theirs = (*SPMD, "run", str(other), "--inputs", str(CASE / "inputs.npz"))
    done = run_ranks(mine, mine, theirs, mine)
    assert done.returncode == 2
    assert done.stderr.count("ranks do not have the same module: rank 2:") == 1
    assert "Traceback" not in done.stderr


def test_a_rank_without_its_inputs_ends_the_job_with_its_number() -> None:
    lacking = (*SPMD, "run", str(PAIR / "module.hlo"), "--inputs", "nowhere.npz")
    done = run_ranks((*SPMD, *RUN_PAIR), lacking)
    assert done.returncode == 2
    assert done.stderr.count("[rank 1/2] nowhere.npz: not a readable .npz file") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--expect", "nowhere.npz"), "[rank 0/2] nowhere.npz: not a readable .npz file"),
        (
            ("--backend", "reference"),
            "--backend reference runs in one process: start it without an MPI launcher",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_run(
    arguments: tuple[str, ...], message: str
) -> None:
    done = run_command(*SPMD, "launch", "-n", "2", "--", *RUN_PAIR, *arguments)
    assert done.returncode == 2
    assert done.stderr.count(message) == 1
    assert "MPI_ABORT" not in done.stderr


def test_bad_input_is_said_once_and_not_per_rank(tmp_path: Path) -> None:
    (tmp_path / "bad.hlo").write_text("HloModule m\nENTRY e { ROOT r = f32[2] no-such-op() }\n")
    done = run_command(*SPMD, "launch", "-n", "2", "--", "run", str(tmp_path / "bad.hlo"))
    assert done.returncode == 2
    assert done.stderr.count("spmd: error:") == 1
    assert "no-such-op" in done.stderr
    assert "bad.hlo:2:" in done.stderr


@pytest.mark.parametrize("arguments", [("-n", "0", "--", "run"), ("-n", "2"), ()])
def test_bad_usage_exits_with_two(arguments: tuple[str, ...]) -> None:
    done = run_command(*SPMD, "launch", *arguments)
    assert done.returncode == 2
    assert "usage: spmd launch" in done.stderr


def test_dry_run_prints_the_line() -> None:
    done = run_command(*SPMD, "launch", "-n", "2", "--dry-run", "--", *RUN)
    assert done.returncode == 0
    assert "mpirun -n 2" in done.stdout
    assert done.stdout.rstrip().endswith(str(CASE / "inputs.npz"))
