"""Ranks of a real job on real GPUs, as many as there are: through NCCL, two on one if need be, and through the hosts."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest
from mpi_available import needs_mpi

from runtime.gpu.availability import require_gpu
from tests.paths import ROOT

CASES = ROOT / "tests" / "cases"
#: Seconds after which a job is killed: a rank that hangs on a GPU does not end by itself.
SECONDS = 240
#: The same for two ranks in NCCL, which may hang if both have one GPU.
NCCL_SECONDS = 60
SCENARIOS_SECONDS = 150

pytestmark = [pytest.mark.gpu, needs_mpi, pytest.mark.timeout(SECONDS + 60)]


@pytest.fixture(autouse=True)
def gpus(_gpu: None, is_double: bool) -> int:
    """Return the number of GPUs."""
    if is_double:
        pytest.skip("real ranks take real GPUs; tests/runtime/gpu/test_ranks.py has doubles")
    return require_gpu()


def job(
    ranks: int, collectives: str, *command: str, seconds: int = SECONDS
) -> subprocess.CompletedProcess[str]:
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
        str(seconds),
        "--",
        *command,
    ]
    return subprocess.run(
        line,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + 30,
        cwd=ROOT,
        check=False,
    )


def case(name: str, *options: str, seconds: int = 60) -> list[str]:
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
        str(seconds),
        *options,
    ]


@pytest.mark.parametrize(
    ("ranks", "name"), [(2, "mlp_dp2"), (4, "gpt_dp2tp2"), (4, "ring_attention4"), (8, "mlp_fsdp8")]
)
def test_ranks_through_their_hosts(ranks: int, name: str) -> None:
    done = job(ranks, "host", *case(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "collectives between GPUs use the hosts: SPMD_GPU_COLLECTIVES=host" in done.stderr


def test_ranks_that_share_a_gpu_are_told(gpus: int) -> None:
    if gpus > 1:
        pytest.skip("each of two ranks has a GPU of its own here")
    done = job(2, "", *case("mlp_dp2"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "share one GPU" in done.stderr


# ---- through NCCL, last: if two ranks of one GPU hang there, once is enough
@functools.cache
def two_ranks() -> subprocess.CompletedProcess[str]:
    """Run a case on two ranks that meet through NCCL."""
    options = case("mlp_dp2", seconds=NCCL_SECONDS - 20)
    return job(2, "nccl", *options, seconds=NCCL_SECONDS)


def test_two_ranks_through_nccl() -> None:
    done = two_ranks()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "through the hosts" not in done.stderr


def test_nccl_registers_the_memory_of_programs(gpus: int) -> None:
    if gpus < 2:
        pytest.skip("ranks that share a GPU register nothing")
    assert "does not register memory" not in two_ranks().stderr


def test_steps_in_graphs_through_nccl() -> None:
    """The second step captures its collectives, the later ones replay them."""
    if two_ranks().returncode:
        pytest.skip("two ranks do not meet through NCCL here: test_two_ranks_through_nccl")
    module = str(CASES / "mlp_dp2" / "module.hlo")
    command = ["-m", "launch", "bench", module, "--backend", "gpu", "--repeat", "5"]
    done = job(2, "nccl", *command, seconds=NCCL_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_and_type_through_nccl() -> None:
    if two_ranks().returncode:
        pytest.skip("two ranks do not meet through NCCL here: test_two_ranks_through_nccl")
    scenarios = str(ROOT / "tests" / "gpu" / "nccl_scenarios.py")
    done = job(2, "nccl", scenarios, seconds=SCENARIOS_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
