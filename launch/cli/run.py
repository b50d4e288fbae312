"""`spmd run MODULE`: compile, run and compare; on the ranks of an MPI job or on devices of this process."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.cli.costly_warning import warn_costly
from launch.cli.module_argument import (
    add_module_arguments,
    compile_options,
    load_module,
    positive,
    refuse_gpu,
)
from launch.divergence import first_diverging_op
from launch.execution import execute_steps
from launch.inputs import Array
from launch.job import (
    JobOptions,
    JobResult,
    aliased_outputs,
    conclude,
    expected_outputs,
    fingerprint,
    format_result,
    job_inputs,
    require_world,
    run_steps,
)
from launch.memory_limit import byte_count, require_memory
from launch.mpi import agree, agree_on_code, open_world, run_rank
from launch.mpirun import world_of_environment
from launch.pipeline import compile_module, is_partitioned
from launch.rank_executable import RankExecutable
from runtime.executable import Executable
from spmd.errors import CheckFailed, UnsupportedError
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule
from spmd.text.stage import device_count

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="compile and run a module",
        description="Run a module on the ranks of an MPI job (spmd launch, mpirun), else on devices of this process.",
    )
    add_module_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--inputs", type=Path, metavar="F.npz", help="global arrays arg0, arg1, ..."
    )
    source.add_argument(
        "--seed", type=int, default=0, metavar="S", help="make inputs from a seed (default: 0)"
    )
    parser.add_argument(
        "--outputs", type=Path, metavar="F.npz", help="write global arrays out0, out1, ..."
    )
    parser.add_argument(
        "--expect",
        type=Path,
        metavar="F.npz",
        help="compare with these outputs; exit 1 if they differ",
    )
    parser.add_argument(
        "--atol", type=float, help="with --expect and --check (default: case.json's, or 64 ulp)"
    )
    parser.add_argument(
        "--rtol", type=float, help="with --expect and --check (default: case.json's, or by type)"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the unpartitioned reference evaluator"
    )
    parser.add_argument("--backend", choices=("cpu", "gpu", "reference"), default="cpu")
    parser.add_argument(
        "--memory-limit",
        type=byte_count,
        metavar="B",
        help="refuse a program that takes more bytes (or 64M, 1.5G) of a device, naming its largest buffers",
    )
    parser.add_argument(
        "--steps",
        type=positive,
        default=1,
        metavar="K",
        help="run K times, aliased outputs fed back",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds a rank waits for the others",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    world = world_of_environment()
    if world is None:
        return _run_here(options)
    _, ranks = world
    return run_rank(open_world(ranks, options.timeout), lambda comm: _run_as_rank(options, comm))


def _run_here(options: argparse.Namespace) -> int:
    refuse_gpu(options.backend)
    module = load_module(options.module)
    job = _job_options(options)
    inputs = job_inputs(module, job)
    if options.backend == "reference":
        result = run_steps(lambda arrays: evaluate(module, *arrays), module, inputs, job.steps)
        where, devices = "the reference evaluator", None
    else:
        executable = compile_module(
            module, options.devices, compile_options(options), on_partitioned=warn_costly
        )
        require_memory(executable, options.memory_limit)
        executable.timeout_seconds = options.timeout
        done = execute_steps(executable, inputs, job.steps, aliased_outputs(module))
        result = JobResult(executable.get(done.outputs), done.seconds)
        where = f"{executable.num_devices} devices of this process"
        devices = _partitioned_for(options, module, executable)
    return _conclude(options, module, inputs, result, where, devices)


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    job = _job_options(options)

    def setup() -> tuple[tuple[HloModule, list[Array], Executable], dict[str, str]]:
        refuse_gpu(options.backend)
        if options.backend != "cpu":
            raise UnsupportedError(
                f"--backend {options.backend} runs in one process, not under MPI"
            )
        module = load_module(options.module)
        devices = options.devices if options.devices is not None else device_count(module)
        require_world(devices, world.size)
        inputs = job_inputs(module, job)
        if job.expect is not None and world.rank == 0:
            expected_outputs(module, inputs, job)  # better refused now than after the run
        # Every rank compiles the same program: one of them says so.
        warn = warn_costly if world.rank == 0 else None
        executable = compile_module(module, devices, compile_options(options), on_partitioned=warn)
        require_memory(executable, options.memory_limit)
        return (module, inputs, executable), fingerprint(
            module, inputs, (compile_options(options), job.steps)
        )

    module, inputs, executable = agree(world, setup)
    on_rank = RankExecutable.of(executable, world)
    done = execute_steps(on_rank, inputs, job.steps, aliased_outputs(module))
    outputs = on_rank.get(done.outputs)
    code = 0
    if world.rank == 0:
        result = JobResult(outputs, done.seconds)
        devices = _partitioned_for(options, module, executable)
        code = _conclude(options, module, inputs, result, f"{world.size} MPI ranks", devices)
    return agree_on_code(world, code)


def _conclude(
    options: argparse.Namespace,
    module: HloModule,
    inputs: list[Array],
    result: JobResult,
    where: str,
    devices: int | None,
) -> int:
    """Check, write and print; the exit code. ``devices`` that a logical module was partitioned for, else None."""
    job = _job_options(options)
    result = conclude(result, expected_outputs(module, inputs, job), job)
    if job.check and not result.ok and devices is not None:
        op = first_diverging_op(module, devices, inputs, compile_options(options))
        result = replace(result, first_diverging_op=op)
    print(
        json.dumps(result.as_json(module)) if options.json else format_result(result, module, where)
    )
    return 0 if result.ok else CheckFailed.exit_code


def _partitioned_for(
    options: argparse.Namespace, module: HloModule, executable: Executable
) -> int | None:
    return None if is_partitioned(module, compile_options(options)) else executable.num_devices


def _job_options(options: argparse.Namespace) -> JobOptions:
    return JobOptions(
        inputs=options.inputs,
        seed=options.seed,
        outputs=options.outputs,
        expect=options.expect,
        atol=options.atol,
        rtol=options.rtol,
        check=options.check,
        steps=options.steps,
    )
