"""A module's program, compiled without a look at the cache."""

from __future__ import annotations

from launch.cli.programs.costly_reshard_warning import costly_warning
from launch.options import CompileOptions
from launch.pipeline import compile_module
from partitioner.spmd_partitioner import SpmdPartitioner
from runtime.cpu.precompile import begin_code_for
from runtime.executable import Executable
from spmd.hlo import HloModule


def compile_warning(
    module: HloModule, devices: int | None, options: CompileOptions
) -> tuple[Executable, str]:
    """Compile the module without the cache. Returns the program, and the warnings about it."""
    warnings: list[str] = []

    def on_partitioned(done: SpmdPartitioner) -> None:
        begin_code_for(done.result)
        warnings.append(costly_warning(done))

    executable = compile_module(module, devices, options, on_partitioned=on_partitioned)
    return executable, "".join(warnings)
