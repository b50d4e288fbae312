"""Which engine runs a program: ``--backend``, ``spmd.compile(backend=)``."""

from __future__ import annotations

from runtime.executable import Engine
from spmd.errors import UnsupportedError

BACKENDS = ("cpu", "gpu")


def engine_for(backend: str) -> Engine | None:
    """None: the processor's cores. NoGpuError where a GPU is asked for and cannot be used."""
    if backend not in BACKENDS:
        raise UnsupportedError(f"no {backend!r} back end; there is {', '.join(BACKENDS)}")
    if backend == "cpu":
        return None
    from runtime.gpu.cuda_engine import cuda_engine  # which nobody else needs

    return cuda_engine()


def refuse_gpu_ranks(backend: str) -> None:
    """UnsupportedError where each rank of an MPI job was to have a GPU."""
    if backend == "gpu":
        raise UnsupportedError(
            "GPUs under MPI are not built yet; without mpirun one process runs all devices on GPUs"
        )
