"""`spmd bench MODULE`: step time after warm-up, on MPI ranks or devices of this process."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from collectives.simulate.reasons import brief
from launch.cli.arguments import add_backend, add_program_arguments, add_seed, positive
from launch.cli.program import Program, dispatch, program_here
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.on_ranks import program_on_ranks
from launch.data.inputs import SeededInputs
from launch.execution import time_steps
from launch.imported_before import import_before_timing
from launch.job import step_milliseconds
from launch.report.environment import describe_environment
from launch.target.cores import cores_of
from runtime.cpu.prediction.step import predicted_step
from runtime.interpreter import settings_for_compiling

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

WARM_UP = 3
#: Standard deviation of inputs, similar to that of a network's weights. Products of standard normal inputs become
#: infinities and denormal numbers within a few layers, and these would be timed.
DEVIATION = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compile a module and time its step on small random inputs."
    add_program_arguments(parser)
    parser.add_argument(
        "--repeat",
        type=positive,
        default=20,
        metavar="K",
        help=f"time K steps, after {WARM_UP} warm-up steps (default: 20)",
    )
    add_seed(parser)
    add_backend(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import_before_timing()
    return dispatch(options, _run_here, _run_as_rank)


def _run_here(options: argparse.Namespace) -> int:
    program = program_here(options)
    start = time.perf_counter()
    with settings_for_compiling():
        program.executable.load_devices()
    ready = program.compile_seconds + time.perf_counter() - start
    _report(options, program, ready, _seconds(options, program), ranks=1)
    return 0


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    def agreed_values() -> dict[str, str]:
        asked = (compile_options(options), options.devices, options.repeat, options.seed)
        return {"options": str(asked)}

    program = program_on_ranks(options, world, agreed_values)
    seconds = _seconds(options, program)
    if world.rank == 0:
        _report(options, program, program.compile_seconds, seconds, ranks=world.size)
    world.barrier()
    return 0


def _seconds(options: argparse.Namespace, program: Program) -> list[float]:
    executable = program.executable
    shapes = [argument.shape for argument in executable.inputs]
    state = executable.put(SeededInputs(options.seed, shapes, DEVIATION))
    return time_steps(executable, state, WARM_UP + options.repeat)


def _report(
    options: argparse.Namespace,
    program: Program,
    ready: float,
    seconds: list[float],
    ranks: int,
) -> None:
    """Write the report. ``ready``: seconds from the module's file to a loaded program, machine code included."""
    times = step_milliseconds(seconds[WARM_UP:])
    devices = program.executable.num_devices
    where = describe_environment()
    machine = compile_options(options).machine
    executable = program.executable
    kernels = executable.kernel_report
    predicted = predicted_step(executable.program, executable.module, machine, cores_of(executable))
    if options.json:
        figures = {
            "step_ms": times,
            "predicted_ms": 1e3 * predicted.seconds,
            "predicted_for": str(machine),
            "compile_s": ready,
            "cached": program.cached,
            "devices": devices,
            "ranks": ranks,
            "backend": options.backend,
            "environment": where,
            **({} if kernels is None else {"kernels": kernels.as_json()}),
        }
        print(json.dumps(figures))
        return
    made = "taken from the cache" if program.cached else "compiled"
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    median, least, most = (brief(1e-3 * times[key]) for key in ("median", "min", "max"))
    print(
        f"{program.executable.program.name}: {median} a step (min {least}, max {most}; {options.repeat} steps), "
        f"{devices} devices in {processes}, {made} in {ready:.2f} s"
    )
    if kernels is not None:
        print(kernels)
    kinds = ", ".join(f"{name} {brief(share)}" for name, share in predicted.by_kind[:3])
    print(f"predicted for {machine.name}: {brief(predicted.seconds)} ({kinds})")
    print(f"{where['cores']} cores of {where['cpu']}, {where['blas']} for {where['blas_core']}")
