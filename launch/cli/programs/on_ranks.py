"""Executable of a MODULE argument on the ranks of an MPI job."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launch.cli.output_path import require_writable
from launch.cli.program import Program, compiled_program
from launch.entry import Compiled
from launch.job import versions
from launch.ranks.agreement import agree
from launch.ranks.rank_environment import settings_of_environment
from launch.ranks.shared_compile import compile_on_first
from launch.saved_argument import is_saved, saved_digest

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator
    from launch.source import ModuleSource


def program_on_ranks(
    options: argparse.Namespace,
    world: MpiCommunicator,
    agreed_values: Callable[[], dict[str, str]],
    *,
    record: bool = False,
    reference_every: int = 0,
) -> Program:
    """Return the program on this rank, compiled by rank 0 alone.

    ``options``: as ``dispatch`` passes them. ``agreed_values``: other values that must be equal on all ranks, by name;
    it may raise an error. ``record``, ``reference_every``: as of ``Executable``. Raises the same AgreedError on every
    rank if the values differ, if a rank raises an error, if an output cannot be written, or if reading or compiling
    fails.
    """

    on_gpus = getattr(options, "backend", "cpu") == "gpu"
    if on_gpus:
        # Imports the GPU back end, which programs for the CPU do not need.
        from launch.target.engine_choice import engine_of_ranks, gpu_of_rank

    def setup() -> tuple[argparse.Namespace, dict[str, str]]:
        if world.rank == 0:
            require_writable(*options.writes)
        wanted = agreed_values()
        if on_gpus:
            gpu_of_rank(world)
        return options, {
            "module": _digest(options.module),
            **wanted,
            **versions(),
            **settings_of_environment(),
        }

    agree(world, setup)
    start = time.perf_counter()
    engine = engine_of_ranks(world) if on_gpus else None
    first: list[tuple[Compiled, ModuleSource | None]] = []

    def compile_it() -> Compiled:
        first.append(compiled_program(options, world.size))
        return first[0][0]

    executable = compile_on_first(
        world,
        compile_it,
        record=record,
        reference_every=reference_every,
        engine=engine,
        compiles=not is_saved(options.module),
    )
    seconds = time.perf_counter() - start
    if not first:
        return Program(executable, None, seconds)
    compiled, source = first[0]
    return Program(executable, source, seconds, compiled.cached)


def _digest(argument: str) -> str:
    """Return a text that differs if two ranks have different MODULEs. Raises HloParseError if one cannot be read."""
    saved = saved_digest(argument)
    if saved is not None:
        return saved
    # A saved executable needs no readers of modules.
    from launch.source import digest

    return digest(argument)
