"""From a MODULE argument to an executable that runs: on devices of this process, or on the ranks of an MPI job."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launch.agreement import agree
from launch.cli.costly_warning import warn_costly
from launch.cli.module_argument import add_module_arguments, compile_options, positive_seconds
from launch.ending import run_rank
from launch.job import require_saved_for, require_world, versions
from launch.mpi import open_world
from launch.object_folder import keep_objects
from launch.pipeline import compile_module
from launch.rank_environment import settings_of_environment, world_of_environment
from launch.shared_compile import compile_on_first
from launch.source import digest, load_module, load_saved
from runtime.executable import Executable
from spmd.errors import UnsupportedError
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class Program:
    """``module``: what was compiled; None for a saved executable, and on ranks that were sent what rank 0 compiled."""

    executable: Executable
    module: HloModule | None
    compile_seconds: float


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """MODULE and what all commands that run it take."""
    add_module_arguments(parser, executable=True)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=TIMEOUT_SECONDS,
        metavar="S",
        help=f"seconds a rank waits for one that shows no sign of life (default: {TIMEOUT_SECONDS:g})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def dispatch(
    options: argparse.Namespace,
    here: Callable[[argparse.Namespace], int],
    as_rank: Callable[[argparse.Namespace, MpiCommunicator], int],
) -> int:
    """``here`` in a process of its own, ``as_rank`` where an MPI launcher started this one among others."""
    keep_objects()
    world = world_of_environment()
    if world is None:
        return here(options)
    return run_rank(open_world(world[1], options.timeout), lambda comm: as_rank(options, comm))


def refuse_gpu(backend: str) -> None:
    """UnsupportedError where a GPU was asked for."""
    if backend == "gpu":
        raise UnsupportedError("no GPU back end in this version yet: not run on a GPU")


def program_here(options: argparse.Namespace) -> Program:
    """The program on devices of this process."""
    program = _program(options, None)
    program.executable.timeout_seconds = options.timeout
    return program


def program_on_ranks(
    options: argparse.Namespace,
    world: MpiCommunicator,
    alike: Callable[[], dict[str, str]],
    *,
    record: bool = False,
) -> Program:
    """The program on this rank, compiled by rank 0 alone.

    ``alike``: what else must be the same on all ranks, by name; it may refuse. AgreedError, on every rank alike, where
    they differ, one refuses, or reading or compiling fails. record: for a timeline.
    """

    def setup() -> tuple[argparse.Namespace, dict[str, str]]:
        wanted = alike()
        return options, {
            "module": digest(options.module),
            **wanted,
            **versions(),
            **settings_of_environment(),
        }

    agree(world, setup)
    compiled: list[Program] = []

    def compile_it() -> Executable:
        compiled.append(_program(options, world.size))
        return compiled[0].executable

    executable = compile_on_first(world, compile_it, record=record)
    first = compiled[0] if compiled else Program(executable, None, 0.0)
    return Program(executable, first.module, first.compile_seconds)


def _program(options: argparse.Namespace, ranks: int | None) -> Program:
    """Compiled or loaded. WorldSizeError unless it is for ``ranks`` devices, where that is given."""
    start = time.perf_counter()
    saved = load_saved(options.module)
    if saved is not None:
        wanted = options.devices if options.devices is not None else ranks
        if wanted is not None:
            require_saved_for(saved, wanted)
        return Program(saved, None, time.perf_counter() - start)
    module = load_module(options.module)
    devices = options.devices
    if ranks is not None:
        devices = devices if devices is not None else device_count(module)
        require_world(devices, ranks)
    start = time.perf_counter()
    executable = compile_module(
        module, devices, compile_options(options), on_partitioned=warn_costly
    )
    return Program(executable, module, time.perf_counter() - start)
