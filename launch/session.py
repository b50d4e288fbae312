"""``spmd.compile``: for the devices of this process, or, in a script that an MPI launcher started, for this rank's.

The same script runs under ``mpirun -n N python script.py`` and without: there each rank is one device of the program.
"""

from __future__ import annotations

import functools
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from launch.job import fingerprint, require_world
from launch.mpi import AgreedError, agree, open_world, report_error
from launch.mpirun import world_of_environment
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.rank_executable import RankExecutable
from runtime.executable import Executable
from spmd.errors import RunError, SpmdError, UnsupportedError
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

BACKENDS = ("cpu",)
TIMEOUT_SECONDS = 300.0


def compile_program(
    module: HloModule,
    devices: int | None = None,
    *,
    backend: str = "cpu",
    options: CompileOptions | None = None,
) -> Executable:
    """Carry a logical (or per-device) module through all stages to an executable. ``module`` stays as it is.

    Under MPI every rank calls it with the same module and options, for as many devices as there are ranks, and gets a
    RankExecutable. Raises there, on every rank alike, AgreedError: with the ranks' errors (WorldSizeError says both
    numbers), or with the ranks whose modules or options differ.
    """
    options = options or CompileOptions()
    world = _world()
    if world is None:
        _require_backend(backend)
        return compile_module(module, devices, options)

    def setup() -> tuple[Executable, dict[str, str]]:
        _require_backend(backend)
        wanted = devices if devices is not None else device_count(module)
        require_world(wanted, world.size, "devices=")
        return compile_module(module, wanted, options), fingerprint(module, (), options)

    return RankExecutable.of(agree(world, setup), world)


def _require_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise UnsupportedError(
            f"no {backend!r} back end in this version; there is {', '.join(BACKENDS)}"
        )


@functools.cache
def _world() -> MpiCommunicator | None:
    """All ranks of this process's job, opened at the first compilation; None where no launcher started it."""
    found = world_of_environment()
    if found is None:
        return None
    world = open_world(found[1], TIMEOUT_SECONDS)
    sys.excepthook = functools.partial(_end_job, world)
    return world


def _end_job(
    world: MpiCommunicator,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """An exception that a script leaves on one rank ends the job: the others would wait for it.

    One that all ranks agreed on is printed by rank 0 alone.
    """
    if isinstance(error, AgreedError):
        if world.rank == 0:
            report_error(str(error))
        world.barrier()
        world.abort(error.agreed_code)
    text = "".join(traceback.format_exception(kind, error, trace))
    report_error(f"[rank {world.rank}/{world.size}] {text}")
    world.abort(error.exit_code if isinstance(error, SpmdError) else RunError.exit_code)
