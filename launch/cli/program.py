"""Executable of a MODULE argument on devices of this process; on_ranks.py has MPI's ranks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cache.cache_folder import keep_objects
from launch.entry import Compiled
from launch.job import require_saved_for
from launch.ranks.messages import report_note
from launch.ranks.rank_environment import (
    require_mpi_launcher,
    timeout_seconds,
    world_of_environment,
)
from launch.saved_argument import load_saved, trust_code_in
from runtime.executable import Executable
from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator
    from launch.source import ModuleSource
    from runtime.local_devices import Engine
    from spmd.hlo import HloModule


@dataclass(frozen=True)
class Program:
    """An executable with its origin.

    source: the module that was compiled; None for a saved executable, and on ranks that received the program from rank
      0.
    compile_seconds: from reading the module's file to the executable.
    cached: it was loaded from the cache.
    """

    executable: Executable
    source: ModuleSource | None
    compile_seconds: float
    cached: bool = False

    @property
    def module(self) -> HloModule | None:
        """Read where it has not been."""
        return None if self.source is None else self.source.module


def dispatch(
    options: argparse.Namespace,
    here: Callable[[argparse.Namespace], int],
    as_rank: Callable[[argparse.Namespace, MpiCommunicator], int],
    writes: tuple[Path | None, ...] = (),
) -> int:
    """Call ``here`` in a process of its own, or ``as_rank`` if an MPI launcher started this process.

    ``writes``: files that will be written, on ranks by rank 0 (program_on_ranks). Raises OutputPathError if one of them
    cannot be written, and RunError if a launcher without MPI started this process.
    """
    keep_objects()
    options.timeout = timeout_seconds(options.timeout)
    world = world_of_environment()
    if world is None:
        require_mpi_launcher()
        if any(writes):
            from launch.cli.output_path import require_writable  # only for runs that write files

            require_writable(*writes)
        return here(options)

    if options.trust:
        # Before a rank loads the file, ranks wait at a barrier whose code is in the file.
        trust_code_in(options.module)
    from launch.ranks.shutdown import run_rank
    from launch.ranks.world import open_world

    def on_world(comm: MpiCommunicator) -> int:
        node = comm.nodes.devices_of_each
        return as_rank(argparse.Namespace(**vars(options), node=node, writes=writes), comm)

    return run_rank(open_world(world[1], options.timeout), on_world)


def program_here(options: argparse.Namespace) -> Program:
    """Return the program on devices of this process. Raises NoGpuError if these should be GPUs and there is none."""
    start = time.perf_counter()
    engine = _engine(getattr(options, "backend", "cpu"))
    compiled, source = compiled_program(options, None)
    compiled.executable.timeout_seconds = options.timeout
    compiled.executable.engine = engine
    seconds = time.perf_counter() - start
    return Program(compiled.executable, source, seconds, compiled.cached)


def _engine(backend: str) -> Engine | None:
    if backend == "cpu":
        return None
    from launch.target.engine_choice import engine_for

    return engine_for(backend)


def compiled_program(
    options: argparse.Namespace, ranks: int | None
) -> tuple[Compiled, ModuleSource | None]:
    """Compile or load the program. Raises WorldSizeError if it is not for ``ranks`` devices, unless that is None."""
    saved = load_saved(options.module, trusted=options.trust)
    if saved is not None:
        wanted = options.devices if options.devices is not None else ranks
        if wanted is not None:
            require_saved_for(saved.executable, wanted)
        _note_what_changes_nothing(options)
        return Compiled(saved.executable, "", None if ranks is None else saved.sound), None
    # A saved executable runs without the compiler.
    from launch.cli.programs.compiled_module import compiled_module

    return compiled_module(options, ranks)


def _note_what_changes_nothing(options: argparse.Namespace) -> None:
    """Note the options that have no effect on a saved executable."""
    names = ("stage", "machine", "without", "without_callbacks")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given:
        have = "has" if len(given) == 1 else "have"
        report_note(f"{options.module} is compiled already: {' and '.join(given)} {have} no effect")
