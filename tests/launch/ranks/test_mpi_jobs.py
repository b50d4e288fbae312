"""Whole MPI jobs that go wrong: a readable error, a non-zero exit, and nobody hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mpi_available import needs_mpi

from launch.mpirun import MpiJob

PROGRAM = Path(__file__).parent / "rank_program.py"
#: Seconds, on a machine that does other work as well; who waits for a rank that never comes takes 300 and more.
PROMPT = 100.0

pytestmark = needs_mpi


@dataclass(frozen=True)
class Outcome:
    code: int
    errors: str
    seconds: float


def run_job(ranks: int, *arguments: str) -> Outcome:
    job = MpiJob(ranks, (sys.executable, str(PROGRAM), *arguments))
    started = time.monotonic()
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    return Outcome(done.returncode, done.stderr, time.monotonic() - started)


def said_by_a_rank(errors: str) -> bool:
    """Return whether `errors` holds a message of a rank or the launcher, beside mpirun's on the job's end."""
    return "spmd: " in errors or "Traceback" in errors or "[rank " in errors


def test_a_job_ends_with_the_largest_code_of_its_ranks_and_no_message() -> None:
    outcome = run_job(2, "fine")
    assert outcome.code == 1
    assert not said_by_a_rank(outcome.errors)


def test_different_modules_on_two_ranks() -> None:
    outcome = run_job(3, "different_modules")
    assert outcome.code == 2
    message = "spmd: error: ranks do not have the same module: rank 1: sha256 b; the other ranks: sha256 a"
    assert outcome.errors.count(message) == 1
    assert "Traceback" not in outcome.errors


def test_a_rank_that_cannot_set_up() -> None:
    outcome = run_job(3, "raises_in_setup")
    assert outcome.code == 3
    assert outcome.errors.count("spmd: error: [rank 2/3] /data/step.hlo: no such file") == 1
    assert "Traceback" not in outcome.errors


def test_a_rank_that_raises_while_the_others_wait() -> None:
    outcome = run_job(3, "raises_while_running")
    assert outcome.code == 3
    assert "spmd: error: [rank 1/3] fusion.7: out of memory" in outcome.errors
    assert "Traceback" not in outcome.errors
    assert outcome.seconds < PROMPT


def test_a_defect_on_one_rank_shows_its_traceback_and_ends_the_job() -> None:
    outcome = run_job(2, "has_a_defect")
    assert outcome.code == 3
    assert "[rank 1/2] Traceback" in outcome.errors
    assert "KeyError: 'no such thing'" in outcome.errors
    assert outcome.seconds < PROMPT


def test_a_rank_that_stalls_is_named_with_what_it_did_last() -> None:
    outcome = run_job(3, "stalls_later", "2")
    assert outcome.code == 3
    message = (
        "all-reduce.3: group {0,1,2} did not complete within 2 s: nothing received from {1} "
        "(rank 1 computes dot.7 (noted"
    )
    assert message in outcome.errors
    assert outcome.seconds < PROMPT


def test_a_rank_of_another_node_that_stalls_is_named() -> None:
    """Its messages have not come; what it does is on the board of its own node alone."""
    outcome = run_job(3, "stalls_on_two_nodes", "2")
    assert outcome.code == 3
    message = "all-reduce.3: group {0,1,2} did not complete within 2 s: nothing received from {1} ("
    assert message in outcome.errors
    assert outcome.seconds < PROMPT


def test_a_rank_that_stalls_before_it_binds_is_named_too() -> None:
    outcome = run_job(3, "stalls", "2")
    assert outcome.code == 3
    assert "among all ranks did not finish within 2 s (" in outcome.errors
    assert "rank 1 computes dot.7 (noted" in outcome.errors
    assert outcome.seconds < PROMPT


def test_a_rank_that_stalls_before_the_first_collective() -> None:
    outcome = run_job(2, "stalls_before_agreeing", "2")
    assert outcome.code == 3
    assert (
        "[rank 0/2] an exchange of sizes among all ranks did not finish within 2 s"
        in outcome.errors
    )
    assert outcome.seconds < PROMPT


def test_a_rank_that_is_killed_ends_the_job_and_leaves_no_shared_memory() -> None:
    outcome = run_job(3, "is_killed")
    assert outcome.code != 0
    assert outcome.seconds < PROMPT
    left = set(Path("/dev/shm").glob("spmd-memory-*"))
    # Other jobs of this machine have files there, each for as long as its ranks take to open it.
    deadline = time.monotonic() + 20
    while any(path.exists() for path in left):
        assert time.monotonic() < deadline, "files outlived their job"
        time.sleep(0.05)


def test_ranks_with_node_identities_of_their_own_share_no_memory() -> None:
    outcome = run_job(2, "on_two_nodes")
    assert outcome.code == 0, outcome.errors


def test_a_rank_whose_row_cannot_be_seen_yet_is_not_lost() -> None:
    outcome = run_job(2, "opens_its_row_late", "0.5")
    assert outcome.code == 0
    assert not said_by_a_rank(outcome.errors)
