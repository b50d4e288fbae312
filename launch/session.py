"""``spmd.compile``: for the devices of this process, or, in a script that an MPI launcher started, for this rank's.

The same script runs under ``mpirun -n N python script.py`` and without: there each rank is one device of the program.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from launch.agreement import agree
from launch.compiled import Compiled, compile_source
from launch.digest import digest_of
from launch.ending import end_job
from launch.gpu import engine_for, engine_of_ranks, gpu_of_rank, require_backend
from launch.job import require_saved_for, require_world, versions
from launch.machine_option import machine_for
from launch.mpi import open_world
from launch.object_folder import keep_objects
from launch.options import CompileOptions
from launch.rank_environment import settings_of_environment, world_of_environment
from launch.shared_compile import compile_on_first
from launch.source import ModuleSource
from runtime.executable import Executable
from runtime.saved import SavedExecutableError, load_bytes
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

TIMEOUT_SECONDS = 300.0


def compile_program(
    module: HloModule,
    devices: int | None = None,
    *,
    backend: str = "cpu",
    options: CompileOptions | None = None,
) -> Executable:
    """Carry a logical (or per-device) module through all stages to an executable. ``module`` stays as it is.

    One that was compiled before with the same options is taken from the user's cache folder, unless SPMD_PROGRAM_CACHE
    is "off" or ``options`` ask for checks.

    Under MPI every rank calls it with the same module and options, for as many devices as there are ranks; rank 0
    compiles, and every rank gets a RankExecutable. Raises there, on every rank alike, AgreedError: with the ranks'
    errors (WorldSizeError says both numbers), or with the ranks whose modules or options differ.
    """
    keep_objects()
    world = _world()
    node = None if world is None else world.nodes.devices_of_each
    options = options or CompileOptions(machine=machine_for(None, node, backend))
    source = ModuleSource(lambda: module)
    if world is None:
        engine = engine_for(backend)
        executable = compile_source(source, devices, options).executable
        executable.engine = engine
        return executable

    def setup() -> tuple[int, dict[str, str]]:
        require_backend(backend)
        if backend == "gpu":
            gpu_of_rank(world)
        named = device_count(module)
        wanted = devices if devices is not None else named
        require_world(wanted, world.size, "devices=" if named in (1, world.size) else "")
        text = digest_of(str(module).encode())
        return wanted, {"module": text, "options": str(options), **_alike()}

    wanted = agree(world, setup)
    engine = engine_of_ranks(world) if backend == "gpu" else None
    return compile_on_first(world, lambda: compile_source(source, wanted, options), engine=engine)


def load_executable(path: str | Path) -> Executable:
    """The executable that ``Executable.save`` or ``spmd compile`` wrote to ``path``; SavedExecutableError for no such.

    Under MPI rank 0 reads it, and every rank gets its RankExecutable of it.
    """

    keep_objects()

    def read() -> Executable:
        try:
            return load_bytes(Path(path).read_bytes(), str(path))
        except OSError as error:
            raise SavedExecutableError(f"{path}: {error.strerror or error}") from error

    world = _world()
    if world is None:
        return read()

    agree(world, lambda: ("alike", _alike()))

    def for_this_world() -> Compiled:
        executable = read()
        require_saved_for(executable, world.size)
        return Compiled(executable, "")

    return compile_on_first(world, for_this_world)


def _alike() -> dict[str, str]:
    """What every rank has alike, whatever it runs."""
    return {**versions(), **settings_of_environment()}


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
    _: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """An exception that a script leaves on one rank ends the job: the others would wait for it."""
    sys.exit(end_job(world, error.with_traceback(trace)))
