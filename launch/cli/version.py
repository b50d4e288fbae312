"""`spmd --version`: this project's version, with those of what it runs on."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

import spmd
from launch.mpirun import LaunchError, find_mpirun

_PACKAGES = ("numpy", "llvmlite", "mpi4py")


def version_text() -> str:
    """Return a line for each part; "none" for one that is not installed."""
    lines = [f"spmd {spmd.__version__}", f"Python {platform.python_version()}"]
    lines += [f"{name} {_installed(name)}" for name in _PACKAGES]
    return "\n".join([*lines, f"MPI {_launcher()}"])


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _launcher() -> str:
    """Return the first line that says mpirun's version: to ask the library would be to load it."""
    try:
        said = subprocess.run(
            (find_mpirun(), "--version"), capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (LaunchError, OSError, subprocess.TimeoutExpired):
        return "none"
    lines = [line.strip() for line in said.splitlines() if any(map(str.isdigit, line))]
    return lines[0] if lines else "of an unknown version"
