"""Python scripts under mpirun: `spmd.compile` finds the world, and runs give what one process gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi_available import needs_mpi

import spmd
from launch.mpirun import MpiJob
from spmd.errors import RunError, UnsupportedError

PROGRAM = Path(__file__).parent / "session_program.py"


def run_script(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    job = MpiJob(ranks, (sys.executable, str(PROGRAM), *arguments))
    return subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@needs_mpi
def test_three_donated_steps_give_the_bits_of_one_process(tmp_path: Path) -> None:
    done = run_script(2, "train", str(tmp_path / "ranks.npz"))
    assert done.returncode == 0, done.stderr
    subprocess.run(
        (sys.executable, str(PROGRAM), "train", str(tmp_path / "here.npz")), check=True, timeout=120
    )
    ranks, here = np.load(tmp_path / "ranks.npz"), np.load(tmp_path / "here.npz")
    assert len(ranks.files) == 3
    assert {name: ranks[name].tobytes() for name in ranks.files} == {
        name: here[name].tobytes() for name in here.files
    }


@needs_mpi
def test_global_arrays_on_the_first_rank_or_all_and_tiles() -> None:
    done = run_script(2, "call_forms")
    assert done.returncode == 0, done.stderr


@needs_mpi
def test_an_executable_is_saved_and_loaded_again(tmp_path: Path) -> None:
    path = str(tmp_path / "double.spmdx")
    done = run_script(2, "saved", path)
    assert done.returncode == 0, done.stderr
    done = run_script(3, "saved_for_others", path)
    assert done.returncode == 2
    assert done.stderr.count("the saved executable is for 2 devices, not for 3") == 1
    assert done.stderr.count("spmd: error:") == 1
    assert "Traceback" not in done.stderr
    assert "MPI_ABORT" not in done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("wrong_devices", "the module is for 4 devices, but the job has 2 ranks: start 4, or use devices=2"),
        ("different_modules", "ranks do not have the same module: rank 1: "),
        ("exits_on_one_rank", "spmd: error: [rank 0/2] an exchange of sizes among all ranks cannot finish (rank 1 has ended its program"),
        ("hangs_on_one_rank", "within 1 s"),
        ("fails_on_one_rank", "ValueError: the batch of rank 1 is missing"),
    ],
)  # fmt: skip
def test_what_goes_wrong_on_ranks_ends_all_with_one_message(program: str, message: str) -> None:
    done = run_script(2, program)
    assert done.returncode != 0
    assert done.stderr.count(message) == 1
    assert ("Traceback" in done.stderr) == (program == "fails_on_one_rank")


def test_one_process_holds_all_tiles() -> None:
    text = """
        HloModule swap, num_partitions=2
        ENTRY main {
          x = f32[4,2] parameter(0), sharding={devices=[2,1]<=[2]}
          ROOT y = f32[4,2] negate(x), sharding={devices=[1,2]<=[2]}
        }
        """
    executable = spmd.compile(spmd.parse(text), devices=2)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    state = executable.run(executable.put([x]))
    assert state.tiles[0][0].shape == (4, 1)
    (y,) = executable.get(executable.run(state))  # divided along the other dimension: moved first
    np.testing.assert_array_equal(y, x)
    with pytest.raises(RunError, match="this process runs 2"):
        executable.run(x, sharded=True)
    with pytest.raises(UnsupportedError, match="no 'tpu' back end"):
        spmd.compile(spmd.parse(text), devices=2, backend="tpu")
