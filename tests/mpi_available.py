"""Whether MPI jobs can be started here."""

from __future__ import annotations

import pytest

from launch.mpirun import LaunchError, find_mpirun


def has_mpi() -> bool:
    try:
        find_mpirun()
        import mpi4py  # noqa: F401
    except (LaunchError, ImportError):
        return False
    return True


needs_mpi = pytest.mark.skipif(not has_mpi(), reason="needs mpi4py and mpirun (the `mpi` extra)")
