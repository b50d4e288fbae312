"""Find out whether MPI jobs can be started here, and if not why."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from launch.mpirun import LaunchError, find_mpirun

#: In a process of its own: a test's process is no rank.
_LOAD = "import mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI"


@cache
def why_no_mpi() -> str:
    """Return why MPI jobs cannot be started here; nothing if they can."""
    try:
        find_mpirun()
    except LaunchError as error:
        return str(error)
    done = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, timeout=60)
    return (
        ""
        if done.returncode == 0
        else f"mpi4py finds no MPI: {done.stderr.strip().splitlines()[-1]}"
    )


def has_mpi() -> bool:
    return not why_no_mpi()


needs_mpi = pytest.mark.skipif(not has_mpi(), reason=why_no_mpi() or "MPI is here")
