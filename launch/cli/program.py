"""From a MODULE argument to an executable that runs: on devices of this process, or on the ranks of an MPI job."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cache.cache_folder import keep_objects
from launch.cache.compile_cached import Compiled, compile_source
from launch.cache.program_cache import HELP
from launch.cli.argument_types import positive_seconds, seed
from launch.cli.module_argument import (
    add_module_arguments,
    compile_options,
    source_named,
)
from launch.cli.output_path import require_writable
from launch.job import require_saved_for, require_world, versions
from launch.ranks.agreement import agree
from launch.ranks.messages import report_note
from launch.ranks.rank_environment import settings_of_environment, world_of_environment
from launch.ranks.rank_timeout import DEFAULT_SECONDS, timeout_seconds
from launch.ranks.shared_compile import compile_on_first
from launch.ranks.shutdown import run_rank
from launch.ranks.world import open_world
from launch.source import ModuleSource, digest, load_saved
from launch.target.engine_choice import BACKENDS, engine_for, engine_of_ranks, gpu_of_rank
from launch.target.machine_option import add_machine
from runtime.executable import Executable
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


@dataclass(frozen=True)
class Program:
    """``source``: what was compiled; None for a saved executable, and on ranks that were sent what rank 0 compiled.

    ``compile_seconds``: from the module's file to the executable. ``cached``: it was compiled before.
    """

    executable: Executable
    source: ModuleSource | None
    compile_seconds: float
    cached: bool = False

    @property
    def module(self) -> HloModule | None:
        """Read where it has not been."""
        return None if self.source is None else self.source.module


def add_program_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """MODULE, which may be left out where it is not ``required``, and what all commands that run it take."""
    parser.epilog = HELP
    add_module_arguments(parser, required=required, executable=True)
    add_machine(parser)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=None,
        metavar="S",
        help="seconds a rank waits for one that shows no sign of life, and that a loop of the reference evaluator "
        f"takes (default: {DEFAULT_SECONDS:g}, or what SPMD_TIMEOUT says)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--seed",
        type=seed,
        default=0,
        metavar="S",
        help="make the inputs from a seed (default: 0)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="cpu",
        help="what computes: this machine's cores (default: cpu) or GPUs (docs/gpu.md)",
    )


def dispatch(
    options: argparse.Namespace,
    here: Callable[[argparse.Namespace], int],
    as_rank: Callable[[argparse.Namespace, MpiCommunicator], int],
    writes: tuple[Path | None, ...] = (),
) -> int:
    """``here`` in a process of its own, ``as_rank`` where an MPI launcher started this one among others.

    ``writes``: files that will be written, on ranks by rank 0 (program_on_ranks): OutputPathError where one cannot be.
    """
    keep_objects()
    options.timeout = timeout_seconds(options.timeout)
    world = world_of_environment()
    if world is None:
        require_writable(*writes)
        return here(options)

    def on_world(comm: MpiCommunicator) -> int:
        node = comm.nodes.devices_of_each
        return as_rank(argparse.Namespace(**vars(options), node=node, writes=writes), comm)

    return run_rank(open_world(world[1], options.timeout), on_world)


def program_here(options: argparse.Namespace) -> Program:
    """The program on devices of this process; NoGpuError where these are to be GPUs, and there is none."""
    start = time.perf_counter()
    engine = engine_for(getattr(options, "backend", "cpu"))
    compiled, source = _compiled(options, None)
    compiled.executable.timeout_seconds = options.timeout
    compiled.executable.engine = engine
    seconds = time.perf_counter() - start
    return Program(compiled.executable, source, seconds, compiled.cached)


def program_on_ranks(
    options: argparse.Namespace,
    world: MpiCommunicator,
    alike: Callable[[], dict[str, str]],
    *,
    record: bool = False,
    reference_every: int = 0,
) -> Program:
    """The program on this rank, compiled by rank 0 alone.

    ``options``: as ``dispatch`` gives them. ``alike``: what else must be the same on all ranks, by name; it may refuse.
    AgreedError, on every rank alike, where they differ, one refuses, an output cannot be written, or reading or
    compiling fails. record, reference_every: as of ``Executable``.
    """

    on_gpus = getattr(options, "backend", "cpu") == "gpu"

    def setup() -> tuple[argparse.Namespace, dict[str, str]]:
        if world.rank == 0:
            require_writable(*options.writes)
        wanted = alike()
        if on_gpus:
            gpu_of_rank(world)
        return options, {
            "module": digest(options.module),
            **wanted,
            **versions(),
            **settings_of_environment(),
        }

    agree(world, setup)
    start = time.perf_counter()
    engine = engine_of_ranks(world) if on_gpus else None
    first: list[tuple[Compiled, ModuleSource | None]] = []

    def compile_it() -> Compiled:
        first.append(_compiled(options, world.size))
        return first[0][0]

    executable = compile_on_first(
        world, compile_it, record=record, reference_every=reference_every, engine=engine
    )
    seconds = time.perf_counter() - start
    if not first:
        return Program(executable, None, seconds)
    compiled, source = first[0]
    return Program(executable, source, seconds, compiled.cached)


def _compiled(
    options: argparse.Namespace, ranks: int | None
) -> tuple[Compiled, ModuleSource | None]:
    """Compiled or loaded. WorldSizeError unless it is for ``ranks`` devices, where that is given."""
    saved = load_saved(options.module)
    if saved is not None:
        wanted = options.devices if options.devices is not None else ranks
        if wanted is not None:
            require_saved_for(saved, wanted)
        _note_what_changes_nothing(options)
        return Compiled(saved, ""), None

    def devices_for(module: HloModule) -> int | None:
        if ranks is None or options.devices is not None:
            return wanted_devices
        count = device_count(module)
        require_world(count, ranks, "--devices " if count == 1 else "")
        return count

    wanted_devices: int | None = options.devices
    if ranks is not None and wanted_devices is not None:
        require_world(wanted_devices, ranks)
    source = source_named(options)
    compiled = compile_source(source, wanted_devices, compile_options(options), devices_for)
    if ranks is not None:
        require_world(compiled.executable.num_devices, ranks)
    sys.stderr.write(compiled.warning)
    return compiled, source


def _note_what_changes_nothing(options: argparse.Namespace) -> None:
    """A saved executable is what it was compiled to."""
    names = ("stage", "machine", "without", "without_callbacks")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given:
        change = "changes" if len(given) == 1 else "change"
        report_note(f"{options.module} is compiled already: {' and '.join(given)} {change} nothing")
