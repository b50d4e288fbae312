"""A job of MPI ranks on several hosts of this machine, by MPICH: its launcher's pipes to the ranks cross namespaces.

MPICH has an environment of its own (`make mpich`), since its wheel and Open MPI's both install bin/mpirun.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.two_hosts.commands import NotPermittedError
from benchmarks.two_hosts.link import DEVICE
from benchmarks.two_hosts.namespaces import Host
from launch.ranks.rank_environment import NODE_ID_VARIABLE, end_with_parent
from spmd.errors import RunError

#: Where `make mpich` makes it.
FOLDER = Path(__file__).parents[2] / ".venv-mpich"

#: Nothing goes through memory that two ranks share: the link is the only way.
_BY_THE_LINK = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp", "UCX_NET_DEVICES": DEVICE}
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
#: A message that is put whole keeps back the answer behind it that the other side's message waits for: one way at once.
#: And each look at messages takes at most one of these segments, 64 KB by default, which a fast link fills in less time
#: than ranks compute between two looks.
_BESIDE_COMPUTING = {"UCX_TCP_PUT_ENABLE": "n", "UCX_TCP_RX_SEG_SIZE": "2m"}
_END_SECONDS = 20.0


@dataclass(frozen=True)
class HostsJob:
    """``ranks`` processes of ``command``, on the hosts in order, as many on each, each bound to a core."""

    hosts: tuple[Host, ...]
    ranks: int
    command: tuple[str, ...]
    folder: Path = FOLDER

    def arguments(self) -> list[str]:
        """The launcher's line. NotPermittedError where MPICH is not there."""
        launcher = self.folder / "bin" / "mpirun"
        if not launcher.exists():
            raise NotPermittedError(f"no MPICH in {self.folder}: run `make mpich`")
        cores = sorted(os.sched_getaffinity(0))
        line = [str(launcher)]
        for rank in range(self.ranks):
            host = self.hosts[rank * len(self.hosts) // self.ranks]
            core = str(cores[rank % len(cores)])
            of_rank = host.inside("taskset", "--cpu-list", core, *self.command)
            between = [":"] if rank else []
            line += [*between, "-n", "1", "-env", NODE_ID_VARIABLE, str(host.number), *of_rank]
        return line

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with what the job needs; the first Python and mpirun on PATH are MPICH's."""
        path = os.pathsep.join([str(self.folder / "bin"), base.get("PATH", os.defpath)])
        return {**_ONE_THREAD, **_BESIDE_COMPUTING, **base, **_BY_THE_LINK, "PATH": path}

    def run(self) -> int:
        """Run to the end, and return the exit code; an interrupt ends every rank."""
        job = self._started(None)
        try:
            return job.wait()
        finally:
            _end(job)

    def output(self, timeout_seconds: float | None = None) -> str:
        """Run the job and return what it printed.

        Raises:
            RunError: The job failed.
        """
        job = self._started(subprocess.PIPE)
        try:
            printed, _ = job.communicate(timeout=timeout_seconds)
        finally:
            _end(job)
        if job.returncode:
            raise RunError(f"{' '.join(self.command)}: exit code {job.returncode}")
        return printed.decode()

    def _started(self, output: int | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments(),
            env=self.environment(os.environ),
            stdout=output,
            preexec_fn=lambda: end_with_parent(signal.SIGTERM),
        )


def _end(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is None:
        job.terminate()
        try:
            job.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
