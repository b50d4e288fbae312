"""``spmd.compile``: for the devices of this process, or, in a script that an MPI launcher started, for this rank's.

The same script runs under ``mpirun -n N python script.py`` and without: there each rank is one device of the program.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from launch.cache.cache_folder import keep_objects
from launch.cache.compile_cached import compile_source
from launch.cache.digest import digest_of
from launch.cache.saved_programs import LoadedFile, load_file_bytes
from launch.entry import Compiled
from launch.job import require_saved_for, require_world, versions
from launch.options import CompileOptions
from launch.public_function import public_function
from launch.ranks.agreement import agree
from launch.ranks.rank_environment import (
    require_mpi_launcher,
    settings_of_environment,
    timeout_seconds,
    world_of_environment,
)
from launch.ranks.shared_compile import compile_on_first
from launch.ranks.shutdown import end_job
from launch.ranks.world import open_world
from launch.saved_argument import trust_code_in
from launch.source import ModuleSource
from launch.target.backends import fuses_attention, require_backend
from launch.target.engine_choice import engine_for, engine_of_ranks, gpu_of_rank
from launch.target.machine_option import machine_for
from runtime.executable import Executable
from runtime.saved_archive import SavedExecutableError
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


@public_function("spmd.compile")
def compile_program(
    module: HloModule,
    devices: int | None = None,
    *,
    backend: str = "cpu",
    options: CompileOptions | None = None,
    timeout: float | None = None,
) -> Executable:
    """Carry a logical (or per-device) module through all stages to an executable. ``module`` stays as it is.

    If it was compiled before with the same options, the program is loaded from the user's cache folder, unless
    SPMD_PROGRAM_CACHE is "off" or ``options`` ask for checks. It is put there when it is first loaded, as by ``run``,
    ``put`` or ``load_devices``.

    timeout: seconds without progress after which a device, or a rank, counts as lost; by default the value of the
    environment variable SPMD_TIMEOUT, else 300. The last value that is set applies to all programs of a job.

    Under MPI every rank calls it with the same module and options, for as many devices as there are ranks; rank 0
    compiles, and every rank gets a RankExecutable. Raises AgreedError on every rank, with the ranks' errors
    (WorldSizeError has both numbers), or with the ranks whose modules or options differ.
    """
    _require_module(module)
    keep_objects()
    seconds = timeout_seconds(timeout)
    world = _world_within(seconds, said=timeout is not None)
    node = None if world is None else world.nodes.devices_of_each
    options = options or CompileOptions(
        machine=machine_for(None, node, backend), attention_fusion=fuses_attention(backend)
    )
    source, functions = ModuleSource(lambda: module), module.host_functions
    if world is None:
        engine = engine_for(backend)
        compiled = compile_source(source, devices, options, functions=functions, stored_later=True)
        executable = compiled.executable
        executable.engine = engine
        executable.timeout_seconds = seconds
        return executable

    def setup() -> tuple[int, dict[str, str]]:
        require_backend(backend)
        if backend == "gpu":
            gpu_of_rank(world)
        named = device_count(module)
        wanted = devices if devices is not None else named
        require_world(wanted, world.size, "devices=" if named in (1, world.size) else "")
        text = digest_of(str(module).encode())
        return wanted, {"module": text, "options": str(options), **_agreed_settings()}

    wanted = agree(world, setup)
    engine = engine_of_ranks(world) if backend == "gpu" else None
    return compile_on_first(
        world,
        lambda: compile_source(source, wanted, options, functions=functions),
        engine=engine,
        callbacks=functions.callbacks,
    )


@public_function("spmd.load_executable")
def load_executable(
    path: str | Path, *, timeout: float | None = None, trusted: bool = False
) -> Executable:
    """Load the executable that ``Executable.save`` or ``spmd compile`` wrote to ``path``. Raises SavedExecutableError
    if it is none.

    Under MPI rank 0 reads it, and every rank gets its RankExecutable of it. timeout: as for ``spmd.compile``. trusted:
    use the thunks and machine code in the file, if they were made on a machine like this one, instead of making them
    again from the module. They can do anything that a program can do: pass True only for files from authors whose
    programs you would run.
    """

    keep_objects()

    def read() -> LoadedFile:
        try:
            return load_file_bytes(Path(path).read_bytes(), str(path), trusted=trusted)
        except OSError as error:
            raise SavedExecutableError(f"{path}: {error.strerror or error}") from error

    if trusted:
        trust_code_in(str(path))
    seconds = timeout_seconds(timeout)
    world = _world_within(seconds, said=timeout is not None)
    if world is None:
        executable = read().executable
        executable.timeout_seconds = seconds
        return executable

    agree(world, lambda: ("alike", _agreed_settings()))

    def for_this_world() -> Compiled:
        found = read()
        require_saved_for(found.executable, world.size)
        return Compiled(found.executable, "", found.sound)

    return compile_on_first(world, for_this_world, compiles=False)


def _require_module(module: object) -> None:
    """Raise TypeError for what is no module, with the function that makes one of it."""
    if isinstance(module, HloModule):
        return
    found = type(module).__name__
    if isinstance(module, Path) or (isinstance(module, str) and "\n" not in module):
        advice = f"spmd.compile(spmd.load({str(module)!r})) reads a file"
    elif isinstance(module, str):
        advice = "spmd.parse makes one of text"
    elif callable(module):
        advice = "spmd.from_jax makes one of a function that jax.jit returned, and its arguments"
    else:
        advice = "spmd.load, spmd.parse and spmd.from_jax make one"
    raise TypeError(f"spmd.compile takes an HloModule, found {found}: {advice}")


def _agreed_settings() -> dict[str, str]:
    """Return the settings that must be equal on all ranks, for any program."""
    return {**versions(), **settings_of_environment()}


_worlds: list[MpiCommunicator] = []
"""All ranks of this process's job, once it has been opened: a process is a rank of one job."""


def _world_within(seconds: float, *, said: bool) -> MpiCommunicator | None:
    """Return all ranks of this process's job, opened at the first compilation; None if no launcher started it.

    ``said``: ``seconds`` holds from now on, also where the job has been opened with another time.
    """
    found = world_of_environment()
    if found is None:
        require_mpi_launcher()
        return None
    if not _worlds:
        _worlds.append(open_world(found[1], seconds))
        sys.excepthook = functools.partial(_end_job, _worlds[0])
    if said:
        _worlds[0].timeout_seconds = seconds
    return _worlds[0]


def _end_job(
    world: MpiCommunicator,
    _: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """End the job after an exception that a script leaves on one rank: the others would wait for it."""
    sys.exit(end_job(world, error.with_traceback(trace)))
