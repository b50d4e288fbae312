"""Environment of a rank: the variables that its launcher sets, the tie to the launcher's process, the time limit."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collectives.communicator.liveness.process_state import ProcessId
from spmd.errors import CheckFailed, RunError, SpmdError
from spmd.lazy_dataclass import dataclass

#: If the variable is "1", the report of a defect contains its traceback.
TRACEBACK_VARIABLE = "SPMD_TRACEBACK"

NODE_ID_VARIABLE = "SPMD_NODE_ID"
"""Variable that distinguishes nodes with the same host name. It may differ between ranks."""

PLACEMENT_VARIABLE = "SPMD_PLACEMENT"
"""Variable that, if it is ``off``, leaves ranks on the cores to which the launcher and the system assign them."""

LAUNCHED_VARIABLE = "SPMD_LAUNCHED"
"""Variable that is ``1`` if `spmd launch` has started this rank and reads its exit code (``exit_code_of_rank``)."""

CHECK_FAILED_ON_RANK = 81
"""Exit code of a rank on which a check has failed. It is not 1, which launchers and Python return for other failures.
"""

_SESSION = re.compile(r"(ompi|prte)\.\d+")
"""Pattern of the name of Open MPI's session directory, which ends with the launcher's process number."""

_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class _Launcher:
    """Names of the variables in which a launcher states the number of ranks, this rank, and this rank's local rank."""

    size: str
    rank: str
    local_rank: str


_LAUNCHERS = (
    _Launcher("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    _Launcher("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),
    # SLURM_NTASKS is also set in a batch script, which is no rank unless srun starts it.
    _Launcher("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)


_LOCAL_RANK = "LOCAL_RANK"
"""Variable of torchrun with the local rank."""


def world_of_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return (rank, size) if an MPI launcher started this process, else None. No MPI library is needed."""
    for launcher in _LAUNCHERS:
        size, rank = environment.get(launcher.size), environment.get(launcher.rank)
        if size is not None and rank is not None:
            return int(rank), int(size)
    return None


def require_mpi_launcher(environment: Mapping[str, str] = os.environ) -> None:
    """Raise RunError if torchrun, or another launcher without MPI, started this process as one of several ranks.

    The processes would not find each other, and each would run the whole program.
    """
    rank, size = environment.get("RANK"), environment.get("WORLD_SIZE", "")
    if rank is None or _LOCAL_RANK not in environment or not size.isdecimal() or int(size) < 2:
        return
    if world_of_environment(environment) is None:
        raise RunError(
            f"a launcher without MPI, such as torchrun, started this process as rank {rank} of {size} (RANK, "
            f"WORLD_SIZE), but ranks communicate by MPI: use spmd launch -n {size}, or mpirun; to run the program in "
            "one process, unset WORLD_SIZE"
        )


def exit_code_of_rank(code: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return the exit code by which a rank reports ``code`` to its launcher.

    It differs from ``code`` only for a failed check of a rank that `spmd launch` started.
    """
    if code == CheckFailed.exit_code and environment.get(LAUNCHED_VARIABLE) == "1":
        return CHECK_FAILED_ON_RANK
    return code


def local_rank_of_environment(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this rank's number on its node, which selects its GPU; None if the environment does not state it.

    LOCAL_RANK, which scripts for PyTorch set, counts if the launcher does not state the number.
    """
    for launcher in _LAUNCHERS:
        if launcher.size in environment and launcher.local_rank in environment:
            return int(environment[launcher.local_rank])
    number = environment.get(_LOCAL_RANK, "")
    return int(number) if number.isdecimal() else None


def local_ranks_of_environment() -> int | None:
    """Return the number of ranks on this node; None if the launcher does not state it."""
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def is_single_node_job() -> bool:
    """Return whether Open MPI's launcher states that all ranks of the job are on this node."""
    here = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    return here is not None and here == os.environ.get("OMPI_COMM_WORLD_SIZE")


def blas_threads_of_environment(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of threads for a rank's matrix products: one, unless the user or the launcher sets more."""
    asked = environment.get("OPENBLAS_NUM_THREADS", "")
    return max(1, int(asked)) if asked.isdecimal() else 1


def binds_ranks_of_environment() -> bool:
    """Return whether each rank of a node is bound to cores of its own: PLACEMENT_VARIABLE is not "off"."""
    return os.environ.get(PLACEMENT_VARIABLE) != "off"


#: Variables of libraries that may change a rank's results, by the order of sums or by the choice of code. If those of
#: NCCL differ, ranks may also wait for each other without end.
_CHANGE_RESULTS = (
    "BLIS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_PROTO",
    "NCCL_WIN_ENABLE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "OPENBLAS_NUM_THREADS",
)


#: Variables of this project that do not affect results.
_MAY_DIFFER = {NODE_ID_VARIABLE, LAUNCHED_VARIABLE, TRACEBACK_VARIABLE}


def settings_of_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that must be equal in the environments of all ranks, for ``launch.ranks.agreement.agree``."""
    ours = {name for name in environment if name.startswith("SPMD_")} - _MAY_DIFFER
    names = sorted({*ours, *_CHANGE_RESULTS} & set(environment))
    return {f"environment variable {name}": environment[name] for name in names}


@functools.cache
def own_launcher() -> ProcessId:
    """Return the process of the launcher on this node. The first call, at the rank's start, determines it.

    It is the process that Open MPI's session directory names, since a shell may be between launcher and rank, or else
    the parent process.
    """
    directory = session_directory(os.environ)
    number = os.getppid() if directory is None else int(directory.name.rpartition(".")[2])
    return ProcessId.of(number) or ProcessId(number, 0, 0)


def tie_to_launcher() -> None:
    """Make this process end when its launcher ends, even if the launcher is killed, so that no rank keeps waiting.

    The call ends the process if the launcher has ended already. Until ``catch_interrupts``, SIGINT ends the process
    at once: a KeyboardInterrupt would call MPI_Finalize, which would wait for ranks that wait for this one in MPI_Init.
    """
    parent = os.getppid()
    end_with_parent(signal.SIGKILL)
    has_launcher = own_launcher().started > 0 or not sys.platform.startswith("linux")
    if os.getppid() != parent or not has_launcher or own_launcher().is_dead():
        sys.exit(RunError.exit_code)
    _exchange_interrupt_handler(signal.default_int_handler, signal.SIG_DFL)


def catch_interrupts() -> None:
    """Make SIGINT raise KeyboardInterrupt again. It is called after MPI has started."""
    _exchange_interrupt_handler(signal.SIG_DFL, signal.default_int_handler)


def _exchange_interrupt_handler(old: Any, new: Any) -> None:
    """Replace the handler of SIGINT by ``new`` if it is ``old``. A script's own handler stays."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)


def session_directory(environment: Mapping[str, str]) -> Path | None:
    """Return the folder in which Open MPI's launcher keeps files of this job; None for other launchers.

    The launcher removes the folder unless it is killed.
    """
    directory = environment.get("PMIX_SERVER_TMPDIR")
    return (
        None
        if directory is None or _SESSION.fullmatch(Path(directory).name) is None
        else Path(directory)
    )


def temporary_directory(environment: Mapping[str, str]) -> Path:
    """Return the folder for temporary files, as ``tempfile.gettempdir`` does, but without writing a test file.

    A process that is killed at that moment would leave the test file behind.
    """
    named = (environment.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for directory in filter(None, named):
        if os.access(directory, os.W_OK | os.X_OK):
            return Path(directory)
    return Path("/tmp")  # noqa: S108


def end_with_parent(number: signal.Signals) -> None:
    """Make the system send this process signal ``number`` when its parent ends. It has an effect on Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, number, 0, 0, 0)


# ---- time limit of a wait for a rank that makes no progress


DEFAULT_SECONDS = 300.0

#: Variable with the limit in seconds. It applies if neither --timeout nor a caller of ``spmd.compile`` sets a limit.
TIMEOUT_VARIABLE = "SPMD_TIMEOUT"


class TimeLimitError(SpmdError):
    """Error of a time limit that is no positive number of seconds."""


def timeout_of(arguments: Sequence[str]) -> float | None:
    """Return the seconds of --timeout in a command line; None if it is missing, or if the command will reject it."""
    import argparse  # deferred until the handler of SIGINT is set (launch/__main__.py)

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--timeout", type=float)
    with contextlib.suppress(argparse.ArgumentError):
        found: float | None = parser.parse_known_args(arguments)[0].timeout
        return found
    return None


def timeout_seconds(asked: float | None, environment: Mapping[str, str] = os.environ) -> float:
    """Return the time limit in seconds: ``asked``, else that of TIMEOUT_VARIABLE, else DEFAULT_SECONDS.

    Raises TimeLimitError if it is no positive number.
    """
    text = environment.get(TIMEOUT_VARIABLE, "")
    if asked is None and not text:
        return DEFAULT_SECONDS
    try:
        found = float(text) if asked is None else float(asked)
    except (TypeError, ValueError):
        found = 0.0
    if not found > 0:
        name, value = (TIMEOUT_VARIABLE, text) if asked is None else ("timeout", asked)
        raise TimeLimitError(f"{name} is {value!r}, expected a number of seconds above zero")
    return found
