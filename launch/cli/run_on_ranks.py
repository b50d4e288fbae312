"""`spmd run` on the ranks of an MPI job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.on_ranks import program_on_ranks
from launch.cli.run_job import (
    conclude_job,
    execute_job,
    expected_of,
    job_options,
    job_result,
    require_feeds,
    write_profile,
)
from launch.data.feed_files import feed_digest
from launch.job import inputs_digest
from launch.ranks.agreement import agree, agree_on_code
from runtime.device_program import require_memory
from spmd.errors import UnsupportedError

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


def run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    job = job_options(options)

    def agreed_values() -> dict[str, str]:
        job.require_inputs()
        if options.backend == "reference":
            raise UnsupportedError(
                "--backend reference runs in one process: start it without an MPI launcher"
            )
        return {
            "inputs": inputs_digest(job),
            "options": str(compile_options(options)),
            "option --devices": str(options.devices),
            "option --steps": str(job.steps),
            "option --infeed": "none" if options.infeed is None else feed_digest(options.infeed),
            # Gathering these is collective.
            "option --outfeed": str(options.outfeed),
            "option --profile": "given" if options.profile else "not given",
            "need for global outputs (--outputs, --expect, --check)": (
                "given" if job.needs_global_outputs else "not given"
            ),
        }

    program = program_on_ranks(options, world, agreed_values, record=options.profile is not None)
    executable = program.executable

    def ready() -> tuple[str, dict[str, str]]:
        require_memory(executable.program, options.memory_limit)
        require_feeds(executable, job)
        if world.rank == 0 and job.expect is not None:
            # errors of the file are reported before the run
            expected_of(options, program)
        return "ready", {}

    agree(world, ready)
    done, outfeed = execute_job(executable, job)
    write_profile(options, executable)
    result = job_result(executable, done, outfeed, job)
    code = 0
    if world.rank == 0:
        code = conclude_job(options, program, result, f"{world.size} MPI ranks")
    return agree_on_code(world, code)
