"""Ranks of a real job on real GPUs, as many as there are: through NCCL, two on one if need be, and through the hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_available import needs_mpi

from runtime.gpu.availability import require_gpu

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
#: A rank that hangs on a GPU does not end by itself: then the job is killed.
SECONDS = 240

pytestmark = [pytest.mark.gpu, needs_mpi, pytest.mark.timeout(SECONDS + 60)]


@pytest.fixture(autouse=True)
def gpus(_gpu: None, is_double: bool) -> int:
    """How many there are."""
    if is_double:
        pytest.skip("real ranks take real GPUs; tests/runtime/gpu/test_ranks.py has doubles")
    return require_gpu()


def job(ranks: int, collectives: str, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SPMD_GPU_COLLECTIVES": collectives,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    line = [
        sys.executable,
        "-m",
        "launch.mpirun",
        "-n",
        str(ranks),
        "--timeout",
        str(SECONDS),
        "--",
        *command,
    ]
    return subprocess.run(
        line,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS + 30,
        cwd=ROOT,
        check=False,
    )


def case(name: str, *options: str) -> list[str]:
    folder = CASES / name
    files = ["--inputs", str(folder / "inputs.npz"), "--expect", str(folder / "expected.npz")]
    return [
        "-m",
        "launch",
        "run",
        str(folder / "module.hlo"),
        *files,
        "--backend",
        "gpu",
        "--timeout",
        "60",
        *options,
    ]


@pytest.mark.parametrize("name", ["mlp_dp2"])
def test_two_ranks_through_nccl(name: str) -> None:
    done = job(2, "nccl", *case(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "through the hosts" not in done.stderr


@pytest.mark.parametrize(
    ("ranks", "name"), [(2, "mlp_dp2"), (4, "gpt_dp2tp2"), (4, "ring_attention4"), (8, "mlp_fsdp8")]
)
def test_ranks_through_their_hosts(ranks: int, name: str) -> None:
    done = job(ranks, "host", *case(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GPUs meet through the hosts: SPMD_GPU_COLLECTIVES=host" in done.stderr


def test_every_kind_and_type_through_nccl() -> None:
    done = job(2, "nccl", str(ROOT / "tests" / "gpu" / "nccl_scenarios.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_ranks_that_share_a_gpu_are_told(gpus: int) -> None:
    if gpus > 1:
        pytest.skip("each of two ranks has a GPU of its own here")
    done = job(2, "", *case("mlp_dp2"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "have one GPU" in done.stderr
