"""`spmd bench MODULE`: step time after warm-up, on MPI ranks or devices of this process."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from launch.cli.module_argument import (
    add_module_arguments,
    compile_options,
    load_module,
    positive,
    refuse_gpu,
)
from launch.execution import time_steps
from launch.inputs import entry_inputs, seeded_inputs
from launch.job import fingerprint, require_world, step_milliseconds
from launch.mpi import agree, open_world, run_rank
from launch.mpirun import world_of_environment
from launch.pipeline import compile_module
from launch.rank_executable import RankExecutable
from launch.report.environment import describe_environment
from runtime.executable import Executable
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

WARM_UP = 3


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="time a module's step",
        description="Compile a module and time its step on inputs from a seed.",
    )
    add_module_arguments(parser)
    parser.add_argument(
        "--repeat", type=positive, default=20, metavar="K", help="timed steps (default: 20)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the inputs (default: 0)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds a rank waits for the others",
    )
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_gpu(options.backend)
    world = world_of_environment()
    if world is None:
        return _run_here(options)
    _, ranks = world
    return run_rank(open_world(ranks, options.timeout), lambda comm: _run_as_rank(options, comm))


def _run_here(options: argparse.Namespace) -> int:
    executable, compile_seconds = _compile(options, options.devices)
    inputs = seeded_inputs(options.seed, [boundary.shape for boundary in executable.inputs])
    executable.timeout_seconds = options.timeout
    seconds = time_steps(executable, inputs, WARM_UP + options.repeat)
    _report(options, executable, seconds, compile_seconds, ranks=1)
    return 0


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    def setup() -> tuple[tuple[Executable, float], dict[str, str]]:
        module = load_module(options.module)
        require_world(
            options.devices if options.devices is not None else device_count(module), world.size
        )
        inputs = seeded_inputs(options.seed, entry_inputs(module))
        prints = fingerprint(module, inputs, (compile_options(options), options.repeat))
        return _compile(options, world.size), prints

    executable, compile_seconds = agree(world, setup)
    inputs = seeded_inputs(options.seed, [boundary.shape for boundary in executable.inputs])
    seconds = time_steps(RankExecutable.of(executable, world), inputs, WARM_UP + options.repeat)
    if world.rank == 0:
        _report(options, executable, seconds, compile_seconds, ranks=world.size)
    world.barrier()
    return 0


def _compile(options: argparse.Namespace, devices: int | None) -> tuple[Executable, float]:
    module = load_module(options.module)
    start = time.perf_counter()
    executable = compile_module(module, devices, compile_options(options))
    return executable, time.perf_counter() - start


def _report(
    options: argparse.Namespace,
    executable: Executable,
    seconds: list[float],
    compile_seconds: float,
    ranks: int,
) -> None:
    times = step_milliseconds(seconds[WARM_UP:])
    if options.json:
        figures = {
            "step_ms": times,
            "compile_s": compile_seconds,
            "devices": executable.num_devices,
            "ranks": ranks,
            "backend": options.backend,
            "environment": describe_environment(),
        }
        print(json.dumps(figures))
        return
    where = describe_environment()
    print(
        f"{executable.program.name}: {times['median']:.2f} ms a step "
        f"(least {times['min']:.2f}, most {times['max']:.2f}; {options.repeat} steps), "
        f"{executable.num_devices} devices in {ranks} processes, compiled in {compile_seconds:.2f} s"
    )
    print(f"{where['cores']} cores of {where['cpu']}, {where['blas']} for {where['blas_core']}")
