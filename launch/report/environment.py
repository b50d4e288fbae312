"""Environment of a timing: figures of different machines or BLAS kernels are not comparable."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

_REPORTED = ("numpy", "ml_dtypes", "llvmlite", "mpi4py")


def describe_environment() -> dict[str, Any]:
    """Return the processor, the cores that this process may use, BLAS and the kernels that it
    selected, and versions.
    """
    blas, core = _blas()
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "blas": blas,
        "blas_core": core,
        "versions": {"python": platform.python_version(), **installed_versions(_REPORTED)},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _blas() -> tuple[str, str]:
    """Return NumPy's BLAS with its version, and the processor for which it selected its kernels."""
    built = cast(dict[str, Any], np.show_config(mode="dicts"))
    blas = dict(built.get("Build Dependencies", {}).get("blas", {}))
    name = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return name, "unknown (threadpoolctl is not installed)"
    cores = [str(one["architecture"]) for one in threadpool_info() if "architecture" in one]
    return name, cores[0] if cores else "unknown"


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those of ``packages`` that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
