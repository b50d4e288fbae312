"""A slice of benchmarks/faults/runs.py: jobs that something happens to end in time, say why once, and leave nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from mpi_available import needs_mpi

from collectives.communicator.node.shared_window import default_providers
from launch.mpirun import MpiJob
from launch.ranks.rank_environment import (
    session_directory,
    settings_of_environment,
    temporary_directory,
    timeout_of,
)
from launch.ranks.startup import segments_directories
from tests.paths import ROOT

MODULE = """
HloModule step, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[4096] parameter(0), sharding={devices=[2]<=[2]}
  y = f32[4096] multiply(x, x), metadata={op_name="jit(step)/mul" source_file="model.py" source_line=41}
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(y, zero), dimensions={0}, to_apply=add, sharding={replicated}, metadata={op_name="jit(step)/sum" source_file="model.py" source_line=42}
}
"""


@needs_mpi
@pytest.mark.parametrize(
    ("kind", "case", "seed"),
    [
        ("kill", "ring_attention4", 1),
        ("stop", "ring_attention4", 10),
        ("exception", "mlp_dp2", 0),
        ("exit", "ring_attention4", 0),
        ("between", "mlp_dp2", 0),
        ("option", "mlp_dp2", 0),
        ("environment", "mlp_dp2", 0),
        ("mpirun", "ring_attention4", 9),
        ("launch", "mlp_dp2", 11),
        ("full", "mlp_dp2", 0),
        ("two", "mlp_dp2", 10),
        ("jolts", "mlp_dp2", 0),
    ],
)
def test_a_run_of_a_kind(kind: str, case: str, seed: int, tmp_path: Path) -> None:
    """``seed``: of the moment of the harm, two to four seconds after ranks have begun; until then they use all cores."""
    table = tmp_path / "table.json"
    done = subprocess.run(
        (
            *(sys.executable, "-m", "benchmarks.faults.runs", "--runs", "1", "--kinds", kind),
            *("--cases", case, "--seed", str(seed), "--json", str(table)),
        ),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(table.read_text())
    if not rows:
        pytest.skip("filling /dev/shm takes one of our own, which is not permitted here")
    (row,) = rows
    assert (row["runs"], row["named"]) == (1, 1)


@needs_mpi
def test_a_survivor_says_the_op_and_its_source_line(tmp_path: Path) -> None:
    (tmp_path / "step.hlo").write_text(MODULE)
    faulty = str(ROOT / "benchmarks" / "faults" / "program.py")
    # Rank 1 hangs in its first thunk that computes, in the third step.
    planted = (sys.executable, faulty, "1", "0", "3", "hang")
    run = ("run", str(tmp_path / "step.hlo"), "--steps", "9", "--timeout", "1")
    job = MpiJob(2, (*planted, *run))
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 3
    assert done.stderr.count("spmd: error: [rank 0/2]") == 1
    assert "did not complete within 1 s: nothing received from {1}" in done.stderr
    assert "in step 3 at thunk 1, " in done.stderr
    assert "model.py:4" in done.stderr
    assert 'op_name="jit(step)/' in done.stderr


def test_variables_that_change_results_are_compared() -> None:
    environment = {
        "HOME": "/h",
        "NCCL_DEBUG": "INFO",
        "NCCL_WIN_ENABLE": "0",
        "OPENBLAS_NUM_THREADS": "2",
        "SPMD_X": "1",
        "SPMD_NODE_ID": "a",
    }
    assert settings_of_environment(environment) == {
        "environment variable NCCL_WIN_ENABLE": "0",
        "environment variable OPENBLAS_NUM_THREADS": "2",
        "environment variable SPMD_X": "1",
    }


def test_only_a_directory_that_names_its_launcher_is_a_session() -> None:
    assert session_directory({}) is None
    assert session_directory({"PMIX_SERVER_TMPDIR": "/tmp/ompi.17"}) == Path("/tmp/ompi.17")
    assert session_directory({"PMIX_SERVER_TMPDIR": "/home"}) is None
    assert session_directory({"PMIX_SERVER_TMPDIR": "/tmp/ompi.vm.0"}) is None


def test_starting_writes_no_file_that_a_killed_rank_would_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def probes() -> str:
        raise AssertionError("tempfile writes a file to find its directory")

    monkeypatch.setattr(tempfile, "gettempdir", probes)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert segments_directories(17) == [Path("/dev/shm/spmd-17"), tmp_path / "spmd-17"]
    assert [place.free_bytes() > 0 for place in default_providers()[:2]] == [True, True]
    assert temporary_directory({"TMPDIR": str(tmp_path / "missing")}) == Path("/tmp")


def test_the_limit_is_known_before_the_command_is_imported() -> None:
    assert timeout_of(["run", "m.hlo", "--timeout", "3", "--json"]) == 3.0
    assert timeout_of(["run", "m.hlo", "--timeout=2.5"]) == 2.5
    assert timeout_of(["run", "m.hlo", "--steps", "4"]) is None
    assert timeout_of(["run", "m.hlo", "--timeout", "soon"]) is None
